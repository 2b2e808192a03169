"""Who may wait for a trial, and who is refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Semaphore

import pytest

from headpond.errors import EngineFailed, Overloaded
from headpond.scheduling.planner import WAITING_MOST
from headpond_workloads.generation.engine.trial_queue import (
    MOST,
    MOST_OF_TENANT,
    MOST_WAITING,
    MOST_WAITING_OF_TENANT,
    TrialQueue,
)


class Trials:
    """A queue whose trials go on until they may end."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.queue: TrialQueue[str] = TrialQueue(patience_s=0.01)
        self.may_end = Event()
        self.begun = Semaphore(0)
        self.made = 0
        self._pool = pool

    def make(self) -> str:
        self.made += 1
        self.begun.release()
        self.may_end.wait()
        return "made"

    def begin(self, key: bytes, tenant: str) -> Future[str]:
        future = self._pool.submit(self.queue.once, key, tenant, self.make)
        self.begun.acquire()
        return future

    def join(self, key: bytes, tenant: str) -> Future[str]:
        return self._pool.submit(self.queue.once, key, tenant, self.make)


@contextmanager
def trials() -> Iterator[Trials]:
    with ThreadPoolExecutor(MOST_WAITING + 1) as pool:
        made = Trials(pool)
        try:
            yield made
        finally:
            made.may_end.set()


def test_no_tenant_has_all_trials() -> None:
    with trials() as those:
        for at in range(MOST_OF_TENANT):
            those.begin(b"%d" % at, "greedy")
        with pytest.raises(Overloaded) as refused:
            those.queue.once(b"another", "greedy", those.make)
        assert refused.value.retry_after_s
        those.begin(b"another", "other")


def test_all_tenants_together_are_bounded() -> None:
    with trials() as those:
        for at in range(MOST):
            those.begin(b"%d" % at, f"t{at}")
        with pytest.raises(Overloaded):
            those.queue.once(b"another", "new", those.make)


def test_a_trial_that_is_over_makes_place() -> None:
    with trials() as those:
        begun = [those.begin(b"%d" % at, "t") for at in range(MOST_OF_TENANT)]
        those.may_end.set()
        assert {future.result() for future in begun} == {"made"}
        assert those.queue.once(b"another", "t", those.make) == "made"


def test_the_same_is_tried_once_for_all_who_ask() -> None:
    with trials() as those:
        first = those.begin(b"same", "t")
        others = [those.join(b"same", f"t{at}") for at in range(10)]
        refused = 0
        for _ in range(MOST_WAITING_OF_TENANT):
            future = those.join(b"same", "t")
            try:
                future.result(timeout=0.01)
            except Overloaded:
                refused += 1
            except TimeoutError:
                others.append(future)
        assert refused == 1  # the first one waits as well
        those.may_end.set()
        assert {each.result() for each in [first, *others]} == {"made"}
        assert those.made == 1


def test_what_fails_for_one_may_be_tried_again_by_the_others() -> None:
    def fail() -> str:
        raise EngineFailed

    queue: TrialQueue[str] = TrialQueue()
    with pytest.raises(EngineFailed):
        queue.once(b"same", "t", fail)
    assert queue.once(b"same", "t", lambda: "made") == "made"


def test_those_who_wait_leave_threads_for_the_others() -> None:
    assert max(MOST, MOST_WAITING) < WAITING_MOST
