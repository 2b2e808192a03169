"""A loop whose calls are done when a store has what they gave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from headpond.call import Call, Ended, Event, Failed, Output
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
from headpond.ray_env import free_port
from headpond.scheduling.answer import LoopAnswer
from headpond.scheduling.loop import Loop, loop_for
from headpond.scheduling.write_through import WriteThrough
from headpond.sink import Placement, Point, SinkSettings
from headpond.telemetry.report import CallReport
from headpond.testing.formed import MeasuringEngine, MeasuringItem, Trouble, measuring_record

RECORD = measuring_record()


class FakeSink:
    """Keeps points once its gate is open, or raises what it is told to."""

    def __init__(self, *, is_open: bool = True, failure: Exception | None = None) -> None:
        self.gate = asyncio.Event()
        if is_open:
            self.gate.set()
        self.failure = failure
        self.asked = 0
        self.kept: dict[tuple[str, str], list[Point]] = {}
        self.closed = False

    async def write(self, tenant: str, collection: str, points: Sequence[Point]) -> None:
        self.asked += 1
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.kept.setdefault((tenant, collection), []).extend(points)

    async def close(self) -> None:
        self.closed = True


class Served:
    """A loop over a fake store, and every report."""

    def __init__(self, writes: WriteThrough | None) -> None:
        self.engine = MeasuringEngine()
        self.reports: list[CallReport] = []
        self.loop: Loop = loop_for(
            RECORD,
            self.engine,
            RECORD.bind({}, "uint8"),
            state_bytes=10_000,
            bundle="measuring@1.0.0+0123456789ab",
            observer=self.reports.append,
            writes=writes,
        )

    async def submit(
        self,
        *texts: str,
        store: bool = True,
        tenant: str = "t",
        deadline_s: float = 60.0,
        stream: bool = False,
        trouble: Trouble | None = None,
    ) -> LoopAnswer:
        ids = tuple(range(len(texts)))
        placement = Placement(collection="docs", ids=ids, payloads=tuple({"at": i} for i in ids))
        return await self.loop.submit(
            Call(
                request_id="r1",
                tenant=tenant,
                workload="measuring",
                model="measuring",
                items=tuple(MeasuringItem(text=text, trouble=trouble) for text in texts),
                deadline_s=deadline_s,
                stream=stream,
                store=placement if store else None,
            )
        )

    @property
    def outcomes(self) -> list[str]:
        return [report.outcome for report in self.reports]


def as_vector(payload: object) -> list[float]:
    assert isinstance(payload, int)
    return [float(payload), 1.0]


@asynccontextmanager
async def serving(
    sink: FakeSink | WriteThrough | None, *, max_points: int = 8, timeout_s: float = 30.0
) -> AsyncIterator[Served]:
    writes = sink if isinstance(sink, WriteThrough) else None
    if isinstance(sink, FakeSink):
        writes = WriteThrough(sink, as_vector, timeout_s=timeout_s, max_points=max_points)
    served = Served(writes)
    served.loop.start()
    try:
        yield served
    finally:
        if isinstance(sink, FakeSink):
            sink.gate.set()
        await served.loop.stop(5.0)


async def read(answer: LoopAnswer) -> list[Event]:
    return [event async for batch in answer.batches() for event in batch]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the lanes set no asyncio event
        await asyncio.sleep(0.001)


async def test_what_a_call_gave_is_stored_when_it_is_done() -> None:
    sink = FakeSink()
    async with serving(sink) as served:
        events = await read(await served.submit("a", "bb"))
    assert {event.item: event.payload for event in events if isinstance(event, Output)} == {
        0: 1,
        1: 2,
    }
    assert isinstance(events[-1], Ended)
    assert sink.kept == {
        ("t", "docs"): [
            Point(point_id=0, vector=[1.0, 1.0], payload={"at": 0}),
            Point(point_id=1, vector=[2.0, 1.0], payload={"at": 1}),
        ]
    }
    assert served.outcomes == ["ok"]
    assert sink.closed
    (report,) = served.reports
    assert report.phases_s["delivery"] > 0
    assert sum(report.phases_s.values()) == pytest.approx(report.total_s)


async def test_a_call_is_neither_done_nor_counted_before_the_store_has_it() -> None:
    sink = FakeSink(is_open=False)
    async with serving(sink) as served:
        reading = asyncio.create_task(read(await served.submit("a")))
        await until(lambda: sink.asked == 1)
        assert await read(await served.submit("other", store=False))  # it holds up nobody else
        assert served.outcomes == ["ok"]
        assert not reading.done()
        sink.gate.set()
        assert isinstance((await reading)[-1], Ended)
        assert served.outcomes == ["ok", "ok"]
        assert served.reports[1].total_s > served.reports[0].total_s


async def test_calls_that_ask_for_no_storing_are_not_stored() -> None:
    sink = FakeSink()
    async with serving(sink) as served:
        await read(await served.submit("a", store=False))
    assert sink.asked == 0


async def test_without_a_store_the_field_is_named() -> None:
    async with serving(None) as served:
        with pytest.raises(InvalidRequest) as refused:
            await served.submit("a")
        assert refused.value.param == "store"
        assert await read(await served.submit("a", store=False))


async def test_streams_are_not_stored() -> None:
    async with serving(FakeSink()) as served:
        with pytest.raises(InvalidRequest) as refused:
            await served.submit("a", stream=True)
    assert refused.value.param == "store"


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (StoreUnavailable(), StoreUnavailable),
        (InvalidRequest("no", param="store.collection"), InvalidRequest),
        (RuntimeError("secret"), EngineFailed),
    ],
)
async def test_a_failed_write_fails_the_call(
    failure: Exception, raised: type[HeadpondError]
) -> None:
    sink = FakeSink(failure=failure)
    async with serving(sink) as served:
        with pytest.raises(raised) as failed:
            await read(await served.submit("a"))
        assert "secret" not in failed.value.message
        assert failed.value.retryable == (raised is StoreUnavailable)
        assert len(served.outcomes) == 1
        assert served.outcomes != ["ok"]
        sink.failure = None
        await read(await served.submit("a"))  # the same again, now whole
    assert [point.point_id for point in sink.kept["t", "docs"]] == [0]


async def test_nothing_is_stored_of_a_call_with_a_failed_item() -> None:
    sink = FakeSink()
    async with serving(sink) as served:
        events = await read(await served.submit("a", trouble="error"))
        assert any(isinstance(event, Failed) for event in events)
        for _ in range(2):  # and its points are no longer in flight
            await read(await served.submit(*"abcdefgh"))
    assert sink.asked == 2


async def test_points_in_flight_are_bounded() -> None:
    sink = FakeSink(is_open=False)
    async with serving(sink, max_points=3) as served:
        reading = asyncio.create_task(read(await served.submit("a", "b")))
        await until(lambda: sink.asked == 1)
        with pytest.raises(Overloaded) as refused:
            await served.submit("c", "d")
        assert refused.value.retry_after_s is not None
        assert refused.value.retry_after_s >= 1
        one_more = asyncio.create_task(read(await served.submit("e", tenant="two")))
        sink.gate.set()
        await asyncio.gather(reading, one_more)
        await read(await served.submit("c", "d"))
        with pytest.raises(InvalidRequest, match="at most 3"):
            await served.submit(*"abcd")
    assert [len(points) for points in sink.kept.values()] == [4, 1]


async def test_refused_and_cancelled_calls_leave_no_points_in_flight() -> None:
    sink = FakeSink()
    async with serving(sink, max_points=2) as served:
        for _ in range(3):
            with pytest.raises(InvalidRequest):
                await served.submit("a" * 2_000, "b")
            with pytest.raises(DeadlineExceeded):
                await served.submit("a", "b", deadline_s=0.0)
            await (await served.submit("a", "b")).close()
            await until(lambda: not served.loop.snapshot().running_slots)
            await until(lambda: len(served.reports) % 3 == 0)
        await read(await served.submit("a", "b"))


async def test_the_write_is_part_of_the_deadline() -> None:
    sink = FakeSink(is_open=False)
    async with serving(sink) as served:
        with pytest.raises(DeadlineExceeded):
            await read(await served.submit("a", deadline_s=0.5))
        assert sink.asked == 1
        assert served.outcomes == ["deadline_exceeded"]
    assert not sink.kept


async def test_a_store_that_does_not_answer_is_unavailable() -> None:
    sink = FakeSink(is_open=False)
    async with serving(sink, timeout_s=0.05) as served:
        with pytest.raises(StoreUnavailable):
            await read(await served.submit("a"))
        assert served.outcomes == ["store_unavailable"]


async def test_writes_go_on_when_the_caller_goes_away() -> None:
    sink = FakeSink(is_open=False)
    async with serving(sink) as served:
        answer = await served.submit("a")
        await until(lambda: sink.asked == 1)
        await answer.close()
        sink.gate.set()
        await until(lambda: bool(served.reports))
    assert len(sink.kept["t", "docs"]) == 1


async def test_stopping_lets_a_write_end_within_its_time() -> None:
    sink = FakeSink(is_open=False)
    async with serving(sink) as served:
        answer = await served.submit("a")
        await until(lambda: sink.asked == 1)
        stopping = asyncio.create_task(served.loop.stop(30.0))
        await until(lambda: not served.loop.snapshot().alive)
        sink.gate.set()
        await stopping
        assert isinstance((await read(answer))[-1], Ended)
        assert served.outcomes == ["ok"]


async def test_stopping_ends_a_late_write() -> None:
    sink = FakeSink(is_open=False)
    async with serving(sink) as served:
        answer = await served.submit("a")
        await until(lambda: sink.asked == 1)
        await served.loop.stop(0.0)
        with pytest.raises(WorkerLost):
            await read(answer)
        assert served.outcomes == ["worker_lost"]
    assert not sink.kept


async def test_tenants_are_told_apart() -> None:
    sink = FakeSink()
    async with serving(sink) as served:
        await read(await served.submit("a", tenant="one"))
        await read(await served.submit("bb", tenant="two"))
    assert [point.vector for point in sink.kept["one", "docs"]] == [[1.0, 1.0]]
    assert [point.vector for point in sink.kept["two", "docs"]] == [[2.0, 1.0]]


async def test_a_tenant_leaves_room_for_others() -> None:
    sink = FakeSink(is_open=False)
    async with serving(sink, max_points=8) as served:
        first = await served.submit("a", "b", "c", tenant="one")
        with pytest.raises(Overloaded):
            await served.submit("d", "e", tenant="one")
        others = [await served.submit("f", "g", "h", "i", tenant="two")]
        others.append(await served.submit("j", tenant="three"))
        sink.gate.set()
        for answer in (first, *others):
            await read(answer)


def test_a_workload_without_vectors_has_nothing_to_store() -> None:
    with pytest.raises(BundleError) as refused:
        WriteThrough.open(SinkSettings(url="qdrant+http://qdrant:6333"), RECORD)
    assert refused.value.param == "sink"


async def test_a_store_is_opened_as_a_deployment_says() -> None:
    settings = SinkSettings(url=f"qdrant+http://127.0.0.1:{free_port()}", max_points=1)
    writes = WriteThrough.open(settings, replace(RECORD, vector=as_vector))
    async with serving(writes) as served:
        with pytest.raises(InvalidRequest, match="at most 1"):
            await served.submit("a", "b")
        with pytest.raises(StoreUnavailable):
            await read(await served.submit("a"))
