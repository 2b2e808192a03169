"""The lanes of an engine: threads that form a batch, run it and form the next.

Where an engine has express lanes these take small calls, and the others large ones and batch
work: a batch that runs can't be stopped, but the system shares the cores between threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from headpond.engine import FormedEngine, Outcome
from headpond.errors import EngineFailed, HeadpondError, InvalidRequest
from headpond.scheduling.batcher import Batch, Batcher
from headpond.scheduling.border import attempt
from headpond.scheduling.giving_way import give_way
from headpond.scheduling.sequence import Delivery, Item, LiveCall
from headpond.scheduling.snapshot import LoopSnapshot
from headpond.scheduling.worker import Deliver, refuse_unready
from headpond.units import Work

Engine = FormedEngine[Any, Any, object]
"""Any engine of formed batches; its items and plans are its own types."""


class Lanes:
    """Drives an engine on as many threads as it has lanes.

    One lock guards the batcher. It is never held while the engine works, so nobody ever
    waits for a batch, and a stuck lane blocks only itself.
    """

    def __init__(
        self,
        batcher: Batcher,
        engine: Engine,
        *,
        clock: Callable[[], float],
        stuck_after_s: float,
        deliver: Deliver,
        ended: Callable[[], None],
    ) -> None:
        """Put the parts together; nothing runs before `start`.

        Args:
            batcher: Decides.
            engine: Does the work.
            clock: Monotonic seconds.
            stuck_after_s: A batch that takes longer means a stuck engine.
            deliver: Called on a lane's thread, after a batch, with what callers get.
            ended: Called on the thread of the last lane to end, whatever the reason.
        """
        self._batcher = batcher
        self._engine = engine
        self._clock = clock
        self._stuck_after_s = stuck_after_s
        self._deliver = deliver
        self._ended = ended
        self._lock = threading.Lock()
        kinds = (True, False) if engine.express_lanes else (None,)
        self._work = {small: threading.Condition(self._lock) for small in kinds}
        self._threads = [
            threading.Thread(
                target=self._run, args=(lane,), name=f"headpond-lane-{lane}", daemon=True
            )
            for lane in range(engine.lanes + engine.express_lanes)
        ]
        self._busy_since: dict[int, float] = {}
        self._left = len(self._threads)
        self._stopping = False

    def start(self) -> None:
        """Start the lanes.

        Raises:
            RuntimeError: They were started before.
        """
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether every lane runs; while stopping, whether one still does."""
        running = [thread.is_alive() for thread in self._threads]
        return any(running) if self._stopping else all(running)

    def check_ready(self, now_s: float) -> None:
        """Refuse when a call could not be served now.

        Raises:
            NotReady: Being stopped, not running, or stuck.
        """
        refuse_unready(stopping=self._stopping, alive=self.alive, stuck=self._stuck(now_s))

    def offer(self, call: LiveCall, now_s: float) -> Delivery | None:
        """Let a planned call wait for its turns; return it whole when it needs none.

        Raises:
            HeadpondError: Refused; nothing is retained.
        """
        with self._lock:
            self.check_ready(now_s)
            delivery = self._batcher.offer(call, now_s)
            if delivery is None:
                small = call.small if self._engine.express_lanes else None
                self._work[small].notify(len(call.items))
            return delivery

    def feed(self, call: LiveCall, payload: object, units: int) -> None:
        """Refuse input: what is in a formed batch is all there.

        Raises:
            InvalidRequest: Always.
        """
        raise InvalidRequest("this call takes no further input")

    def cancel(self, call: LiveCall, error: HeadpondError) -> None:
        """Let a call end with `error` at the next chance; no change when it is over."""
        with self._lock:
            self._batcher.cancel(call, error)

    def drain(self) -> None:
        """Take no more calls; the lanes end when nothing waits any more."""
        with self._lock:
            self._stopping = True
            self._wake(everybody=True)

    def abort(self, error: HeadpondError) -> None:
        """End every call with `error`; what is being computed is thrown away."""
        with self._lock:
            self._batcher.abort(error)
            self._wake(everybody=True)

    def join(self, timeout_s: float) -> None:
        """Block until every lane has ended, but no longer than `timeout_s`."""
        until_s = self._clock() + timeout_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(until_s - self._clock(), 0.0))

    def work_done(self, item: Item) -> Work:
        """Return the work of an item that never came to its end: none."""
        del item
        return Work()

    def snapshot(self, refused: dict[str, int]) -> LoopSnapshot:
        """Return how the loop stands, without waiting for the engine."""
        with self._lock:
            batcher, now_s = self._batcher, self._clock()
            last_s = batcher.last_batch_s
            return LoopSnapshot(
                queued_calls=sum(not call.scheduled for call in batcher.calls),
                queued_items=len(batcher.queue),
                queued_work=batcher.queue.weight,
                running_slots=batcher.running_items,
                preempted_slots=0,
                state_held_bytes=batcher.ledger.held_bytes,
                state_budget_bytes=batcher.ledger.budget_bytes,
                steps=batcher.batches,
                failed_steps_in_a_row=batcher.failed_in_a_row,
                last_step_age_s=None if last_s is None else now_s - last_s,
                busy_s=self._busy_s(now_s),
                stuck=self._stuck(now_s),
                alive=self.alive,
                stopping=self._stopping,
                preemptions=0,
                finished=dict(batcher.finished),
                refused=refused,
                drain_rate=batcher.drain.per_s,
            )

    def _busy_s(self, now_s: float) -> float | None:
        since = list(self._busy_since.values())
        return now_s - min(since) if since else None

    def _stuck(self, now_s: float) -> bool:
        return (self._busy_s(now_s) or 0.0) > self._stuck_after_s

    def _run(self, lane: int) -> None:
        if self._small(lane) is False:
            give_way()
        try:
            while True:
                batch, deliveries, over = self._take(lane)
                if deliveries:
                    self._deliver(deliveries)
                if batch is not None:
                    self._compute(lane, batch)
                elif over:
                    return
        finally:
            with self._lock:
                self._left -= 1
                last = not self._left
                self._wake(everybody=True)
            if last:
                self._ended()

    def _take(self, lane: int) -> tuple[Batch | None, Sequence[Delivery], bool]:
        """Sleep until there is a batch, something to deliver, or no more to do."""
        small = self._small(lane)
        with self._lock:
            while True:
                now_s = self._clock()
                batch = self._batcher.form(now_s, small)
                deliveries = self._batcher.collect(now_s)
                over = self._stopping and not self._batcher.calls
                if batch is not None:
                    self._busy_since[lane] = now_s
                    self._wake()
                if batch is not None or deliveries or over:
                    return batch, deliveries, over
                # Woken by new calls, by a batch that gave back its state, and at the end.
                self._work[small].wait()

    def _compute(self, lane: int, batch: Batch) -> None:
        results = attempt(self._results, batch)
        with self._lock:
            now_s = self._clock()
            self._batcher.advance(batch, results, now_s)
            del self._busy_since[lane]
            deliveries = self._batcher.collect(now_s)
            self._wake(everybody=self._stopping)
        if deliveries:
            self._deliver(deliveries)

    def _small(self, lane: int) -> bool | None:
        """Say whether a lane is for small calls or for large ones; None for any."""
        return lane >= self._engine.lanes if self._engine.express_lanes else None

    def _wake(self, *, everybody: bool = False) -> None:
        """Wake the lanes that something waits for."""
        for small, work in self._work.items():
            if everybody or self._batcher.waits(small):
                work.notify_all()

    def _results(self, batch: Batch) -> Sequence[Outcome[object]]:
        results = self._engine.run([item.plan for item in batch.items])
        if len(results) != len(batch.items):
            raise EngineFailed("the engine answered for another number of items")
        return results
