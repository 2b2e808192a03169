"""What a workload says to be served over the protocol: its tensors, and both ways between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from headpond.engine import Json
from headpond.errors import InvalidRequest
from headpond_workloads.oip.datatypes import Datatype
from headpond_workloads.oip.schema import TensorMetadata
from headpond_workloads.oip.tensor import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedOutput:
    """An output that is to be in the answer.

    Attributes:
        name: One of the adapter's outputs.
        is_binary: Whether it follows the JSON as bytes.
        classification: How many of the greatest entries of each row are wanted, as texts,
            instead of all entries.
    """

    name: str
    is_binary: bool = False
    classification: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorRequest:
    """A request whose tensors are what their shapes say.

    Attributes:
        inputs: By name; at least one, and only names that the adapter knows.
        outputs: What is to be in the answer, each once.
        parameters: Those of the request that the protocol has no meaning for.
    """

    inputs: Mapping[str, Tensor]
    outputs: tuple[WantedOutput, ...]
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)

    def input(self, name: str, *datatypes: Datatype) -> Tensor:
        """Return an input that must be there, and of one of these datatypes.

        Raises:
            InvalidRequest: It is not.
        """
        tensor = self.inputs.get(name)
        if tensor is None:
            raise InvalidRequest(f"the input `{name}` is missing", param="inputs")
        if tensor.datatype not in datatypes:
            raise InvalidRequest(
                f"must be {' or '.join(datatypes)}, not {tensor.datatype}",
                param=f"inputs.{name}.datatype",
            )
        return tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorModel:
    """What a model takes and gives, for its metadata.

    Attributes:
        platform: What runs it, e.g. `pytorch`.
        inputs: Its inputs; -1 is an axis of any length.
        outputs: Its outputs.
    """

    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorAdapter:
    """How a workload's items and outputs are tensors.

    Attributes:
        inputs: The names of all inputs that one of its models may take.
        outputs: The names of the outputs that its models give, in their order.
        to_items: Returns the items of a request, one for each row of its batch, at least
            one; raises `InvalidRequest`, naming the input. `Tensor.rows` cuts a batch up.
        from_outputs: Returns the tensors of an answer, from the request and what each item
            gave, in the order of the items. At least the outputs that the request wants
            must be among them.
        about: The item that asks what a model is; the engine answers it while planning,
            with one output.
        describe: Returns what that one output says of the model.
        example: A request's body that works with any model of the workload.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    to_items: Callable[[TensorRequest], Sequence[object]]
    from_outputs: Callable[[TensorRequest, Sequence[Sequence[object]]], Sequence[Tensor]]
    about: object
    describe: Callable[[object], TensorModel]
    example: Mapping[str, Json]
