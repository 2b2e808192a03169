"""What engines over one text encoder have in common: how it is driven, and what it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from headpond.engine import Immediate, Json, Outcome, Plan
from headpond_workloads.encoders.encoder import Encoder
from headpond_workloads.encoders.items import Described, DescribeItem

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")
Payload = TypeVar("Payload")


class EncoderEngine(ABC, Generic[Item, Prepared, Payload]):
    """Plans inputs and computes batches of them; what of them is made is the derived class's."""

    def __init__(
        self,
        *,
        encoder: Encoder,
        description: Described,
        symbols: Mapping[str, int],
        nothing: Prepared,
    ) -> None:
        """Keep what every such engine needs.

        Args:
            encoder: Computes token vectors.
            description: What the model is.
            symbols: The same, in the record's symbols.
            nothing: What stands in the plan of an item that planning has answered.
        """
        self._encoder = encoder
        self._description = description
        self._symbols = symbols
        self._nothing = nothing

    @property
    def symbols(self) -> Mapping[str, int]:
        """What the loaded model is, in the record's symbols."""
        return self._symbols

    @property
    def lanes(self) -> int:
        """How many batches can be computed at once."""
        return self._encoder.lanes

    @property
    def express_lanes(self) -> int:
        """How many more can be, of small calls."""
        return self._encoder.express_lanes

    @property
    def budget(self) -> int:
        """Tokens in a batch."""
        return self._description.max_batch_tokens

    def tallies(self) -> Mapping[str, int]:
        """Return what was counted since the start; only ever grows."""
        return {"padded_tokens": self._encoder.padded_tokens}

    def plan(self, item: Item | DescribeItem, namespace: str) -> Plan[Prepared]:
        """Tokenize an input and check what is asked of it; answer what asks for the model.

        Raises:
            InvalidRequest: The input, or what is asked for, is none the model can do.
            ContextLengthExceeded: The input is too long, and not to be cut.
        """
        del namespace  # nothing is kept of one item for another
        if isinstance(item, DescribeItem):
            answer = Immediate(outputs=(self._description,))
            return Plan(shape={}, prepared=self._nothing, answer=answer)
        return self._planned(item)

    @abstractmethod
    def _planned(self, item: Item) -> Plan[Prepared]:
        """Return the plan of an input; raises as `plan` does."""

    @abstractmethod
    def run(self, batch: Sequence[Plan[Prepared]]) -> Sequence[Outcome[Payload]]:
        """Compute a batch.

        Raises:
            EngineFailed: There was not enough memory for it.
        """

    @abstractmethod
    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Compute a fixture's input.

        Raises:
            BundleError: The fixture holds something else.
            InvalidRequest: The model can't do it.
            EngineFailed: The model computed NaN.
        """

    def _observed(self, item: Item) -> tuple[Plan[Prepared], Payload]:
        """Compute one input alone."""
        plan = self.plan(item, "")
        (outcome,) = self.run([plan])
        if outcome.error is not None:
            raise outcome.error
        return plan, outcome.outputs[0]
