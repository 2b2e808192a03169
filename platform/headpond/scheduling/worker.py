"""What a loop asks of its worker: the engine on its thread, or threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from headpond.admission.backlog import Backlog, Wait
from headpond.call import Claim
from headpond.errors import HeadpondError, NotReady
from headpond.scheduling.sequence import Delivery, Item, LiveCall
from headpond.scheduling.snapshot import LoopSnapshot
from headpond.units import Work

Deliver = Callable[[Sequence[Delivery]], None]


def refuse_unready(*, stopping: bool, alive: bool, stuck: bool) -> None:
    """Refuse when a call could not be served now.

    Raises:
        NotReady: Being stopped, not running, or stuck.
    """
    if stopping:
        raise NotReady("the model is being stopped", retry_after_s=1.0)
    if not alive:
        raise NotReady("the model's engine does not run", retry_after_s=1.0)
    if stuck:
        raise NotReady("the model's engine is stuck", retry_after_s=1.0)


class Worker(Protocol):
    """Runs calls on an engine, in threads of its own."""

    def start(self) -> None:
        """Start the threads.

        Raises:
            RuntimeError: They were started before.
        """
        ...

    @property
    def alive(self) -> bool:
        """Whether the threads run."""
        ...

    def check_ready(self, now_s: float) -> None:
        """Refuse when a call could not be served now.

        Raises:
            NotReady: Being stopped, not running, or stuck.
        """
        ...

    def offer(self, call: LiveCall, now_s: float) -> Delivery | None:
        """Let a planned call wait for its turns; return it whole when it needs none.

        Raises:
            HeadpondError: Refused; nothing is retained.
        """
        ...

    def check_turn(self, claim: Claim, before: Wait) -> None:
        """Refuse a call that would wait too long however little it asks for.

        Args:
            claim: What is known of it.
            before: Its line before it is offered.

        Raises:
            Overloaded: It would.
        """
        ...

    def backlog(self) -> Backlog:
        """Return what waits, as others may know it."""
        ...

    def feed(self, call: LiveCall, payload: object, units: int) -> None:
        """Take in input for the fed item of a call.

        Raises:
            HeadpondError: The call is not fed, or over, or gets more than it was admitted for.
        """
        ...

    def cancel(self, call: LiveCall, error: HeadpondError) -> None:
        """Let a call end with `error` at the next chance; no change when it is over."""
        ...

    def drain(self) -> None:
        """Take no more calls; the threads end when the last one is over."""
        ...

    def abort(self, error: HeadpondError) -> None:
        """End every call with `error` at the next chance."""
        ...

    def join(self, timeout_s: float) -> None:
        """Block until the threads have ended, but no longer than `timeout_s`."""
        ...

    def work_done(self, item: Item) -> Work:
        """Return the work of the part of an item that was worked off."""
        ...

    def snapshot(self, refused: dict[str, int]) -> LoopSnapshot:
        """Return how the loop stands, without waiting for the engine."""
        ...
