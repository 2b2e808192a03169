"""Inference: tensors in, tensors out."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.call import Failed, Output
from headpond.dialect import Ask, Exchange, Heading, Incoming, ItemEvent, Raw
from headpond.units import Work
from headpond_workloads.oip.adapter import TensorAdapter
from headpond_workloads.oip.naming import asked_model, served_model
from headpond_workloads.oip.reading import read_tensors, read_wire
from headpond_workloads.oip.schema import InferResponse
from headpond_workloads.oip.writing import write_answer


class InferExchange(Exchange):
    """One inference: tensors in, tensors out."""

    def __init__(self, adapter: TensorAdapter, incoming: Incoming) -> None:
        """Read a request.

        Raises:
            InvalidRequest: It is not one; names the input, or the field.
        """
        self._adapter = adapter
        self._path = incoming.path
        request, binary = read_wire(incoming)
        self._id = request.id
        self._request = read_tensors(
            request, binary, inputs=adapter.inputs, outputs=adapter.outputs
        )
        self._items = tuple(adapter.to_items(self._request))

    def ask(self) -> Ask:
        """Return one item for each row."""
        return Ask(model=asked_model(self._path), items=self._items)

    def body(
        self, heading: Heading, events: Sequence[ItemEvent], work: Work
    ) -> InferResponse | Raw:
        """Return the outputs that are wanted.

        Raises:
            HeadpondError: A row failed; the protocol has no place for one among others.
        """
        del work
        outputs: list[list[object]] = [[] for _ in self._items]
        for event in events:
            if isinstance(event, Failed):
                raise event.error.named(f"inputs, row {event.item}")
            if isinstance(event, Output):
                outputs[event.item].append(event.payload)
        tensors = self._adapter.from_outputs(self._request, outputs)
        served = served_model(self._path, heading)
        return write_answer(served, self._id, tensors, self._request.outputs)
