"""The driver: does on the engine what the scheduler decided, and tells it how that went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import cast

from headpond.engine import Progress, Quantum
from headpond.errors import EngineFailed, HeadpondError
from headpond.scheduling.border import attempt
from headpond.scheduling.composer import Grant
from headpond.scheduling.scheduler import Scheduler
from headpond.scheduling.sequence import Delivery, Engine, FedEngine, Item, Stage


class Driver:
    """One turn after another, on whatever thread calls `turn`: the engine's own.

    Every started slot is released exactly once, whatever the engine raises; an engine that
    fails to preempt or release one slot fails no other.
    """

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        clock: Callable[[], float],
        deliver: Callable[[Sequence[Delivery]], None],
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """Bind the two sides.

        Args:
            engine: Does the work; may block for as long as a step takes.
            scheduler: Decides; it is never held locked while the engine works.
            clock: Monotonic seconds.
            deliver: Gets what callers get, once a turn or twice.
            lock: Guards the scheduler where others offer and cancel calls meanwhile.
        """
        self._engine = engine
        self._scheduler = scheduler
        self._clock = clock
        self._deliver = deliver
        self._lock = lock or nullcontext()

    def turn(self) -> bool:
        """Do one turn: preempt, release, start, feed, step, release; deliver what callers get.

        Calls that end before the step are delivered before it: who is late, or gone, is not
        kept waiting for one step more.

        Returns:
            Whether there was anything to do.
        """
        scheduler = self._scheduler
        with self._lock:
            turn = scheduler.decide(self._clock())
        for item in turn.preempted:
            self._preempt(item)
        self._release()
        if scheduler.has_news:
            self._collect()
        for item in turn.started:
            self._start(item)
        for item, inputs in turn.inputs:
            self._feed(item, inputs)
        grants = [grant for grant in turn.grants if grant[0].stage is Stage.RUNNING]
        if grants:
            results = attempt(self._step, grants)
            with self._lock:
                scheduler.advance(grants, results, self._clock())
        self._release()
        self._collect()
        return bool(turn)

    def _collect(self) -> None:
        with self._lock:
            deliveries = self._scheduler.collect(self._clock())
        if deliveries:
            self._deliver(deliveries)

    def _step(self, grants: Sequence[Grant]) -> Sequence[Progress[object]]:
        quanta = [Quantum(slot=item.slot, units=units) for item, units in grants]
        results = self._engine.step(quanta)
        if len(results) != len(quanta):
            raise EngineFailed("the engine answered for another number of slots")
        return results

    def _start(self, item: Item) -> None:
        slot = attempt(self._engine.start, item.plan)
        if isinstance(slot, HeadpondError):
            with self._lock:
                self._scheduler.fail(item, slot)
            return
        item.slot, item.started = slot, True

    def _feed(self, item: Item, inputs: Sequence[object]) -> None:
        if item.stage is not Stage.RUNNING:
            return
        error = attempt(cast("FedEngine", self._engine).feed, item.slot, inputs)
        if isinstance(error, HeadpondError):
            with self._lock:
                self._scheduler.fail(item, error)

    def _preempt(self, item: Item) -> None:
        units = attempt(self._engine.preempt, item.slot)
        with self._lock:
            if isinstance(units, HeadpondError):
                self._scheduler.fail(item, units)
            else:
                self._scheduler.residency.lost_state(item, units)

    def _release(self) -> None:
        with self._lock:
            releasable = self._scheduler.take_releasable()
        for item in releasable:
            if item.started:
                attempt(self._engine.release, item.slot)
                item.slot = None
            with self._lock:
                self._scheduler.released(item)
