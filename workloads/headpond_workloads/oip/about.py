"""What a model is, and whether it can serve: questions that its engine answers at planning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import BaseModel

from headpond.call import Failed, Output
from headpond.dialect import Ask, Exchange, Heading, Incoming, ItemEvent
from headpond.errors import EngineFailed
from headpond.units import Work
from headpond_workloads.oip.adapter import TensorModel
from headpond_workloads.oip.datatypes import Datatype
from headpond_workloads.oip.naming import Served, asked_model, served_model
from headpond_workloads.oip.schema import (
    ConfigTensor,
    ModelConfig,
    ModelMetadata,
    ModelReady,
    TensorMetadata,
)


class AboutExchange(Exchange):
    """One question about a model."""

    def __init__(
        self, about: object, write: Callable[[Served, object], BaseModel], incoming: Incoming
    ) -> None:
        """Ask the model that the path names.

        Args:
            about: The item that asks.
            write: Turns what the engine answers into the body.
            incoming: The request.
        """
        self._about = about
        self._write = write
        self._path = incoming.path

    def ask(self) -> Ask:
        """Return the one item."""
        return Ask(model=asked_model(self._path), items=(self._about,))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> BaseModel:
        """Return the answer.

        Raises:
            HeadpondError: The engine refused to tell.
        """
        del work
        for event in events:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Output):
                return self._write(served_model(self._path, heading), event.payload)
        raise EngineFailed("The model did not say what it is.")


def metadata(served: Served, model: TensorModel) -> ModelMetadata:
    """Return what a model takes and gives; the one version that answers."""
    return ModelMetadata(
        name=served.name,
        versions=[served.version],
        platform=model.platform,
        inputs=model.inputs,
        outputs=model.outputs,
    )


def config(served: Served, model: TensorModel) -> ModelConfig:
    """Return the same as Triton's clients ask for it."""
    return ModelConfig(
        name=served.name,
        platform=model.platform,
        input=[_config_tensor(each) for each in model.inputs],
        output=[_config_tensor(each) for each in model.outputs],
    )


def _config_tensor(tensor: TensorMetadata) -> ConfigTensor:
    word = "STRING" if tensor.datatype is Datatype.BYTES else tensor.datatype.value
    return ConfigTensor(name=tensor.name, data_type=f"TYPE_{word}", dims=tensor.shape)


def ready(served: Served, payload: object) -> ModelReady:
    """Return that a model can serve: it has just said what it is."""
    del payload
    return ModelReady(name=served.name, ready=True)
