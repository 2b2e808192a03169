"""Write-through: what a call gave is in the vector store before the call is done."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Self

from headpond.admission.drain import DrainRate
from headpond.call import Call, Event, Output
from headpond.errors import (
    BundleError,
    DeadlineExceeded,
    EngineFailed,
    HeadpondError,
    InvalidRequest,
    Overloaded,
    StoreUnavailable,
    WorkerLost,
)
from headpond.record import WorkloadRecord
from headpond.scheduling.sequence import LiveCall
from headpond.sink import Placement, Point, Sink, SinkSettings, open_sink

logger = logging.getLogger(__name__)

VectorOf = Callable[[object], Sequence[float]]
"""A workload's output as a vector; its record says how."""

Settle = Callable[[HeadpondError | None], None]
"""Takes the error of a write, or None when all is in the store."""

_TENANT_SHARE = 0.5
"""One tenant's calls hold no more of the points in flight than this: others find room."""


class WriteThrough:
    """Writes what calls gave to a sink, a bounded number of points at a time.

    A point is in flight from its call's admission on. Beyond the bound calls are refused, so
    a slow store slows its own callers and holds up neither an engine nor other calls. All of
    it happens on the event loop's thread.
    """

    def __init__(
        self,
        sink: Sink,
        vector: VectorOf,
        *,
        timeout_s: float,
        max_points: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with nothing in flight.

        Args:
            sink: Where points go; closed with this.
            vector: Makes a vector of an output.
            timeout_s: How long the write of one call may take.
            max_points: The most points in flight.
            clock: Monotonic seconds, the same as of the calls' arrival.
        """
        self._sink = sink
        self._vector = vector
        self._timeout_s = timeout_s
        self._max_points = max_points
        self._clock = clock
        self._drain = DrainRate()
        self._in_flight: dict[LiveCall, int] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._accounted_s = 0.0

    @classmethod
    def open(cls, settings: SinkSettings, record: WorkloadRecord) -> Self:
        """Write what calls of a workload give to the store that a deployment names.

        Raises:
            BundleError: The workload gives no vectors, or the store's client is not usable.
        """
        if record.vector is None:
            raise BundleError(f"{record.name} gives no vectors to store", param="sink")
        return cls(
            open_sink(settings),
            record.vector,
            timeout_s=settings.timeout_s,
            max_points=settings.max_points,
        )

    def check(self, call: Call) -> None:
        """Refuse a call whose points are too many now.

        Raises:
            InvalidRequest: They are too many ever, or the call is streamed.
            Overloaded: Too many points of other calls are in flight, in all or of the tenant.
        """
        if call.stream:
            raise InvalidRequest("what is streamed cannot be stored", param="store")
        count, held = len(call.items), sum(self._in_flight.values())
        if count > self._max_points:
            raise InvalidRequest(
                f"at most {self._max_points} vectors are stored in one call", param="store"
            )
        own = sum(n for live, n in self._in_flight.items() if live.call.tenant == call.tenant)
        most_own = _TENANT_SHARE * self._max_points
        if held + count > self._max_points or (own and own + count > most_own):
            raise Overloaded(
                "the vector store takes no more now",
                param="store",
                retry_after_s=self._drain.retry_after_s(held),
            )

    def enter(self, live: LiveCall) -> None:
        """Count the points of a call that was admitted."""
        self._in_flight[live] = len(live.call.items)

    def leave(self, live: LiveCall) -> None:
        """Forget a call that is over; one that never entered is no matter."""
        self._in_flight.pop(live, None)

    def begin(
        self, live: LiveCall, placement: Placement, events: Sequence[Event], settle: Settle
    ) -> None:
        """Write the points of a call whose every item went well, without waiting for it.

        Args:
            live: The call; it leaves when that is over.
            placement: Where it wants them.
            events: All it gave.
            settle: Called once, when that is over.
        """
        if not self._writing:
            self._accounted_s = self._clock()
        task = asyncio.create_task(self._run(live, placement, events, settle))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def close(self, drain_s: float) -> None:
        """Let writes end within `drain_s`, end the rest with `WorkerLost`, close the sink."""
        if self._writing:
            _, late = await asyncio.wait(self._writing, timeout=max(drain_s, 0.0))
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await self._sink.close()

    async def _run(
        self, live: LiveCall, placement: Placement, events: Sequence[Event], settle: Settle
    ) -> None:
        error: HeadpondError | None = WorkerLost()
        try:
            error = await self._write(live, placement, events)
        finally:
            self._account(live, error)
            self.leave(live)
            settle(error)

    async def _write(
        self, live: LiveCall, placement: Placement, events: Sequence[Event]
    ) -> HeadpondError | None:
        left_s = live.deadline_at_s - self._clock()
        if left_s <= 0:
            return DeadlineExceeded()
        try:
            async with asyncio.timeout(min(left_s, self._timeout_s)):
                points = self._points(placement, events)
                await self._sink.write(live.call.tenant, placement.collection, points)
        except TimeoutError:
            if left_s <= self._timeout_s:
                return DeadlineExceeded()
            return StoreUnavailable("The vector store did not answer in time.")
        except HeadpondError as error:
            return error
        except Exception as error:
            # A sink's own code, and nobody else would tell the caller. Only the kind is
            # logged: the message may hold a caller's data.
            logger.error("the sink raised %s", type(error).__name__)
            logger.debug("sink traceback", exc_info=error)
            return EngineFailed("The vectors could not be stored.")
        return None

    def _points(self, placement: Placement, events: Sequence[Event]) -> list[Point]:
        given = {event.item: event.payload for event in events if isinstance(event, Output)}
        payloads = placement.payloads or ({},) * len(placement.ids)
        return [
            Point(point_id=point_id, vector=self._vector(given[item]), payload=payload)
            for item, (point_id, payload) in enumerate(zip(placement.ids, payloads, strict=True))
        ]

    def _account(self, live: LiveCall, error: HeadpondError | None) -> None:
        now_s = self._clock()
        done = 0 if error is not None else len(live.call.items)
        self._drain.record(done, now_s - self._accounted_s)
        self._accounted_s = now_s
