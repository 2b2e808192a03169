"""A backend that computes each item with a function: for tests of what asks many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headpond.call import (
    Accepted,
    Answer,
    Call,
    Claim,
    Done,
    Ended,
    Event,
    Failed,
    ModelCard,
    Output,
)
from headpond.errors import HeadpondError, ModelNotFound
from headpond.units import Work
from headpond.whole_answer import WholeAnswer


@dataclass(kw_only=True)
class AnsweringBackend:
    """Answers every item of every call at once.

    Attributes:
        cards: The models; each can be asked for by its name and by its bundles.
        compute: Makes an item's payload, or raises the error that the item ends with.
        admit: Called with each call; raises what refuses it.
        calls: Every call that was admitted.
    """

    cards: Sequence[ModelCard]
    compute: Callable[[object], object]
    admit: Callable[[Call], None] = lambda _: None
    calls: list[Call] = field(default_factory=list)

    def check_turn(self, claim: Claim) -> None:
        """Refuse nothing."""

    async def submit(self, call: Call) -> Answer:
        """Compute all items of a call."""
        card = self._card(call.model)
        if card is None:
            raise ModelNotFound.named(call.model)
        self.admit(call)
        self.calls.append(call)
        events: list[Event] = []
        for index, item in enumerate(call.items):
            try:
                events.append(Output(index, self.compute(item)))
                events.append(Done(index, Work(output_chunks=1)))
            except HeadpondError as error:
                events.append(Failed(index, error))
        events.append(Ended(Work(output_chunks=len(call.items))))
        bundle = call.model if call.model in card.bundles else card.bundles[0]
        return WholeAnswer(Accepted(bundle=bundle, model=call.model, work=Work()), events)

    def only_model(self, workload: str) -> str | None:
        """Return the one card of a workload, if there is one."""
        names = [card.name for card in self.cards if card.workload == workload]
        return names[0] if len(names) == 1 else None

    def workload_of(self, model: str) -> str | None:
        """Return what a card says."""
        card = self._card(model)
        return None if card is None else card.workload

    def bundle_of(self, model: str, token: str) -> str | None:
        """Return the first bundle of a card."""
        del token
        card = self._card(model)
        return None if card is None else card.bundles[0]

    async def models(self) -> Sequence[ModelCard]:
        """Return the cards."""
        return self.cards

    async def not_ready(self) -> Mapping[str, str]:
        """Return nothing: all are ready."""
        return {}

    async def metrics(self) -> str:
        """Return nothing."""
        return ""

    def _card(self, model: str) -> ModelCard | None:
        named = (card for card in self.cards if model in (card.name, *card.bundles))
        return next(named, None)
