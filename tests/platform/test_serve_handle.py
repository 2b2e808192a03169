"""A deployment handle whose replicas answer, die, or stand still."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from headpond.call import Call, ModelCard
from headpond.errors import WorkerLost
from headpond.hop import ReplicaStatus
from headpond.roll_call import SILENT_POLLS

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Serve's own, of pydantic
    from ray.exceptions import RayError

    from headpond import serve_handle
    from headpond.serve_handle import ServeHandle

STATUS = ReplicaStatus(
    card=ModelCard(name="toy", workload="toy", bundles=("toy@1",), created_s=0, limits={}),
    reason=None,
)
CALL = Call(request_id="r", tenant="t", workload="toy", model="m", items=(), deadline_s=60.0)
MOST = 100


class FakeActorId(str):
    """The ID of a replica's process."""

    __slots__ = ()

    def hex(self) -> str:
        return str(self)


class FakeResult:
    """What was asked of one replica."""

    def __init__(self, actor: str, reply: Callable[[], object]) -> None:
        self._actor_id = FakeActorId(actor)
        self._reply = reply
        self.cancelled = False

    async def get_async(self) -> object:
        reply = self._reply()
        return await reply if asyncio.isfuture(reply) else reply

    def cancel(self) -> None:
        self.cancelled = True


class FakeServe:
    """Serve's handle over replicas `a` and `b`; calls go to the one that is said."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.dead: set[str] = set()
        self.takes = "a"
        self.asked: list[FakeResult] = []
        self.cancelled = 0
        self.queues: dict[str, int] = {}
        self.replicas = {
            f"name-{each}": SimpleNamespace(actor_id=FakeActorId(each), max_ongoing_requests=MOST)
            for each in "ab"
        }
        router = SimpleNamespace(
            curr_replicas=self.replicas, on_new_queue_len_info=self.queues.__setitem__
        )
        self._router = SimpleNamespace(_asyncio_router=SimpleNamespace(request_router=router))
        self.answer = SimpleNamespace(remote=self._call)

    def options(self, **_: object) -> FakeServe:
        return self

    def broadcast(self, method: str) -> SimpleNamespace:
        replies = {"status": STATUS, "exposition": ("id", "text")}
        self.asked = [
            FakeResult(each, partial(self._reply, each, replies[method])) for each in "ab"
        ]

        async def fetch() -> list[FakeResult]:
            return self.asked

        return SimpleNamespace(_fetch_replica_results_async=fetch)

    def _reply(self, actor: str, reply: object) -> object:
        if actor in self.dead:
            raise RayError
        return asyncio.get_running_loop().create_future() if actor in self.silent else reply

    def _call(self, *_: object) -> SimpleNamespace:
        result = FakeResult(self.takes, lambda: self._reply(self.takes, "answer"))

        async def fetch() -> FakeResult:
            return result

        def cancel() -> None:
            self.cancelled += 1

        return SimpleNamespace(_fetch_future_result_async=fetch, cancel=cancel)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> FakeServe:
    monkeypatch.setattr(serve_handle, "_ANSWER_S", 0.005)
    return FakeServe()


@pytest.fixture
def handle(serve: FakeServe) -> ServeHandle:
    return ServeHandle(cast("DeploymentHandle[object]", serve), "app")


async def test_who_does_not_answer_in_time_holds_up_nobody(
    serve: FakeServe, handle: ServeHandle
) -> None:
    assert list(await handle.statuses()) == [STATUS, STATUS]
    serve.silent = {"a"}
    for _ in range(SILENT_POLLS):
        found = await handle.statuses()
    assert list(found) == [STATUS]
    await asyncio.sleep(0)
    assert [each.cancelled for each in serve.asked] == [True, False]
    assert serve.queues == {"name-a": MOST}
    assert list(await handle.expositions()) == ["id"]


async def test_who_is_dead_is_not_counted(serve: FakeServe, handle: ServeHandle) -> None:
    serve.dead = {"a"}
    assert list(await handle.statuses()) == [STATUS]
    assert serve.queues == {}


async def test_a_call_with_a_silent_replica_is_lost_and_cancelled(
    serve: FakeServe, handle: ServeHandle
) -> None:
    await handle.statuses()
    serve.silent = {"a"}
    call = asyncio.create_task(handle.answer(CALL))
    for _ in range(SILENT_POLLS):
        await handle.statuses()
    with pytest.raises(WorkerLost):
        await call
    assert serve.cancelled == 1
    serve.takes = "b"
    assert await handle.answer(CALL) == cast("object", "answer")


async def test_where_all_are_silent_calls_are_lost_at_once(
    serve: FakeServe, handle: ServeHandle
) -> None:
    serve.silent = {"a", "b"}
    for _ in range(SILENT_POLLS):
        assert list(await handle.statuses()) == []
    async with asyncio.timeout(5):
        with pytest.raises(WorkerLost):
            await handle.answer(CALL)
    serve.silent = set()
    await handle.statuses()
    assert await handle.answer(CALL) == cast("object", "answer")


async def test_a_call_whose_replica_dies_is_lost(serve: FakeServe, handle: ServeHandle) -> None:
    serve.dead = {"a"}
    with pytest.raises(WorkerLost):
        await handle.answer(CALL)


async def test_a_call_that_its_caller_gives_up_is_cancelled(
    serve: FakeServe, handle: ServeHandle
) -> None:
    serve.silent = {"a"}
    call = asyncio.create_task(handle.answer(CALL))
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert serve.cancelled == 1
