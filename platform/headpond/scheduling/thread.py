"""The engine's thread: turns while there is work, sleep while there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from headpond.admission.backlog import Backlog, Wait
from headpond.call import Claim
from headpond.engine import is_lost
from headpond.errors import HeadpondError
from headpond.scheduling.driver import Driver
from headpond.scheduling.niceness import COMPUTING, give_way
from headpond.scheduling.scheduler import Scheduler
from headpond.scheduling.sequence import Delivery, Engine, Item, LiveCall
from headpond.scheduling.snapshot import LoopSnapshot
from headpond.scheduling.worker import Deliver, refuse_unready
from headpond.units import Work

_LEAST_PATIENCE_S = 1e-3


class EngineThread:
    """Drives an engine on a thread of its own; offers and cancellations come from outside.

    One lock guards the scheduler. It is never held while the engine works, so nobody ever
    waits for a step, and a stuck engine blocks only itself.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        engine: Engine,
        *,
        clock: Callable[[], float],
        stuck_after_s: float,
        deliver: Deliver,
        ended: Callable[[], None],
    ) -> None:
        """Put the parts together; nothing runs before `start`.

        Args:
            scheduler: Decides.
            engine: Does the work.
            clock: Monotonic seconds.
            stuck_after_s: A turn that takes longer means a stuck engine.
            deliver: Called on the thread, once a turn or twice, with what callers get.
            ended: Called on the thread when it ends, whatever the reason.
        """
        self._engine = engine
        self._scheduler = scheduler
        self._clock = clock
        self._stuck_after_s = stuck_after_s
        self._deliver = deliver
        self._ended = ended
        self._lock = threading.Condition(threading.Lock())
        self._driver = Driver(engine, scheduler, clock, self._hand_over, self._lock)
        self._thread = threading.Thread(target=self._run, name="headpond-engine", daemon=True)
        self._busy_since: float | None = None
        self._stirred = False
        self._stopping = False
        self._abortion: HeadpondError | None = None

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: It was started before.
        """
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def check_ready(self, now_s: float) -> None:
        """Refuse when a call could not be served now.

        Raises:
            NotReady: Being stopped, not running, or stuck.
        """
        alive = self.alive and not is_lost(self._engine)
        refuse_unready(stopping=self._stopping, alive=alive, stuck=self._stuck(now_s))

    def offer(self, call: LiveCall, now_s: float) -> Delivery | None:
        """Let a planned call wait for its turns; return it whole when it needs none.

        Raises:
            HeadpondError: Refused; nothing is retained.
        """
        with self._lock:
            self.check_ready(now_s)
            delivery = self._scheduler.offer(call, now_s)
            self._stir()
            return delivery

    def check_turn(self, claim: Claim, before: Wait) -> None:
        """Refuse a call that would wait too long however little it asks for.

        Raises:
            Overloaded: It would.
        """
        with self._lock:
            self._scheduler.check_turn(claim, before, self._clock())

    def backlog(self) -> Backlog:
        """Return what waits, as others may know it."""
        with self._lock:
            return self._scheduler.backlog(self._clock())

    def feed(self, call: LiveCall, payload: object, units: int) -> None:
        """Take in input for the fed item of a call.

        Raises:
            HeadpondError: The call is not fed, or over, or gets more than it was admitted for.
        """
        with self._lock:
            self._scheduler.feed(call, payload, units)
            self._stir()

    def cancel(self, call: LiveCall, error: HeadpondError) -> None:
        """Let a call end with `error` at the next chance; no change when it is over."""
        with self._lock:
            self._scheduler.cancel(call, error)
            self._stir()

    def drain(self) -> None:
        """Take no more calls; the thread ends when the last one is over."""
        with self._lock:
            self._stopping = True
            self._stir()

    def abort(self, error: HeadpondError) -> None:
        """End every call with `error` at the next chance."""
        with self._lock:
            self._abortion = error
            self._stir()

    def join(self, timeout_s: float) -> None:
        """Block until the thread has ended, but no longer than `timeout_s`."""
        if self.alive:
            self._thread.join(timeout_s)

    def work_done(self, item: Item) -> Work:
        """Return the work of the part of an item that was worked off."""
        return self._scheduler.work_done(item)

    def snapshot(self, refused: dict[str, int]) -> LoopSnapshot:
        """Return how the loop stands, without waiting for the engine."""
        with self._lock:
            scheduler, residency = self._scheduler, self._scheduler.residency
            now_s, last_s = self._clock(), scheduler.last_step_s
            return LoopSnapshot(
                queued_calls=sum(not call.scheduled for call in scheduler.calls),
                queued_items=len(scheduler.queue),
                queued_work=scheduler.queue.weight,
                running_slots=len(residency.roster),
                preempted_slots=len(residency.preempted),
                state_held_bytes=residency.ledger.held_bytes,
                state_budget_bytes=residency.ledger.budget_bytes,
                steps=scheduler.steps,
                failed_steps_in_a_row=scheduler.failed_steps_in_a_row,
                last_step_age_s=None if last_s is None else now_s - last_s,
                busy_s=self._busy_s(now_s),
                stuck=self._stuck(now_s),
                alive=self.alive,
                stopping=self._stopping,
                preemptions=residency.preemptions,
                finished=dict(scheduler.finished),
                refused=refused,
                drain_rate=scheduler.drain.per_s,
                lost=is_lost(self._engine),
            )

    def _busy_s(self, now_s: float) -> float | None:
        since = self._busy_since
        return None if since is None else now_s - since

    def _stuck(self, now_s: float) -> bool:
        return (self._busy_s(now_s) or 0.0) > self._stuck_after_s

    def _run(self) -> None:
        give_way(COMPUTING)
        moved = False
        try:
            while self._wait(moved):
                self._busy_since = self._clock()
                moved = self._driver.turn()
                self._busy_since = None
        finally:
            self._ended()

    def _hand_over(self, deliveries: Sequence[Delivery]) -> None:
        self._busy_since = self._clock()  # whoever reads this finds an engine that goes on
        self._deliver(deliveries)

    def _stir(self) -> None:
        """Let the thread look for work again; the lock is held."""
        self._stirred = True
        self._lock.notify()

    def _wait(self, moved: bool) -> bool:
        """Sleep until there is work; False when there will be no more.

        Args:
            moved: Whether the last turn had anything to do.
        """
        scheduler = self._scheduler
        with self._lock:
            while not self._stirred:
                if not scheduler.calls:
                    if self._stopping:
                        break
                    self._lock.wait()
                elif moved or not scheduler.all_wait_for_input or not self._sleep():
                    break
            self._stirred = False
            if self._abortion is not None:
                scheduler.abort(self._abortion)
            return bool(scheduler.calls) or not self._stopping

    def _sleep(self) -> bool:
        """Wait for input, at most until a call's time is up; False when it is."""
        until_s = self._scheduler.next_deadline_s
        if until_s is None:
            return self._lock.wait()
        return self._lock.wait(max(until_s - self._clock(), _LEAST_PATIENCE_S))
