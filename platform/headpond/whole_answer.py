"""An answer that is there as a whole before it is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from headpond.call import Accepted, Ended, Event
from headpond.errors import HeadpondError, RequestCancelled
from headpond.units import Work


class WholeAnswer:
    """An answer that came in one message; it takes no more input."""

    def __init__(
        self, accepted: Accepted, events: Sequence[Event], error: HeadpondError | None = None
    ) -> None:
        """Keep what was accepted, every event, and how the call as a whole failed if it did."""
        self.accepted = accepted
        self._events = events
        self._error = error

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Yield everything.

        Raises:
            HeadpondError: The call as a whole failed.
        """
        if self._error is not None:
            raise self._error
        yield self._events

    async def feed(self, payload: object, units: int) -> None:
        """Refuse more input.

        Raises:
            RequestCancelled: Always.
        """
        del payload, units
        raise RequestCancelled("The call was not sent as one that is fed, and is over.")

    @property
    def waiting_units(self) -> int:
        """Nothing waits."""
        return 0

    async def close(self) -> None:
        """Hold nothing."""

    def when_over(self, told: Callable[[Work], None]) -> None:
        """Tell at once: it is over."""
        last = self._events[-1] if self._events else None
        if isinstance(last, Ended):
            told(last.work)
