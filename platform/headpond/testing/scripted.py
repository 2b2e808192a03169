"""A backend that plays a script: for tests of what stands in front of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headpond.call import Accepted, Answer, Call, Claim, Ended, Event, ModelCard
from headpond.errors import ModelNotFound
from headpond.last_word import LastWord
from headpond.units import Work

Step = Sequence[Event] | asyncio.Event | Exception
"""Events that come together, an event to wait for, or an error to raise."""


@dataclass(kw_only=True)
class ScriptedBackend:
    """Plays the same steps for every call, and remembers what happened.

    Attributes:
        steps: What each answer does, in order.
        hopeless: Raised by `check_turn`.
        refusal: Raised by `submit` instead of answering.
        accepted: What each answer says of itself.
        cards: The models; a call for another one is refused.
        reasons: What `not_ready` returns.
        exposition: What `metrics` returns.
        calls: Every call that was submitted.
        closed: The request identifiers of closed answers, once for each time.
        fed: What any answer was fed.
        came_to: What is told of an answer when it was closed; None for nothing.
    """

    accepted: Accepted
    cards: Sequence[ModelCard]
    steps: Sequence[Step] = ()
    hopeless: Exception | None = None
    refusal: Exception | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    exposition: str = ""
    calls: list[Call] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    fed: list[object] = field(default_factory=list)
    came_to: Work | None = None

    def only_model(self, workload: str) -> str | None:
        """Return the one card of a workload, if there is one."""
        names = [card.name for card in self.cards if card.workload == workload]
        return names[0] if len(names) == 1 else None

    def workload_of(self, model: str) -> str | None:
        """Return what a card says."""
        return next((card.workload for card in self.cards if card.name == model), None)

    def bundle_of(self, model: str, token: str) -> str | None:
        """Return the first bundle of a card."""
        del token
        return next((card.bundles[0] for card in self.cards if card.name == model), None)

    def check_turn(self, claim: Claim) -> None:
        """Refuse, if that is wanted."""
        if self.hopeless is not None:
            raise self.hopeless

    async def submit(self, call: Call) -> Answer:
        """Start playing the script for a call."""
        self.calls.append(call)
        if self.refusal is not None:
            raise self.refusal
        if call.model not in {card.name for card in self.cards}:
            raise ModelNotFound
        return ScriptedAnswer(self, call)

    async def models(self) -> Sequence[ModelCard]:
        """Return the cards."""
        return self.cards

    async def not_ready(self) -> Mapping[str, str]:
        """Return the reasons."""
        return self.reasons

    async def metrics(self) -> str:
        """Return the exposition."""
        return self.exposition


class ScriptedAnswer:
    """One playing of the script."""

    def __init__(self, backend: ScriptedBackend, call: Call) -> None:
        self._backend = backend
        self._call = call
        self._last_word = LastWord()
        self.accepted = backend.accepted

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Play the steps."""
        for step in self._backend.steps:
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, Exception):
                raise step
            else:
                if isinstance(last := step[-1] if step else None, Ended):
                    self._last_word.know(last.work)
                yield step

    async def feed(self, payload: object, units: int) -> None:
        """Note what the script has no use for."""
        del units
        self._backend.fed.append(payload)

    @property
    def waiting_units(self) -> int:
        """Nothing waits."""
        return 0

    async def close(self) -> None:
        """Note that the answer was let go of."""
        self._backend.closed.append(self._call.request_id)
        if self._backend.came_to is not None:
            self._last_word.know(self._backend.came_to)

    def when_over(self, told: Callable[[Work], None]) -> None:
        """Tell what `Ended` says, or what the script does when the answer is closed."""
        self._last_word.tell(told)
