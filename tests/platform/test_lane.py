"""The lane: events of many streams over one connection, and what happens when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from headpond.call import Accepted, Done, Event, Output
from headpond.errors import DeadlineExceeded, HeadpondError, WorkerLost
from headpond.hub import LaneHub, OpenStream
from headpond.lane import LaneAddress, LaneServer
from headpond.units import Work


@pytest.fixture
async def server() -> AsyncIterator[tuple[LaneServer, LaneAddress]]:
    lanes = LaneServer()
    address = await lanes.start("127.0.0.1")
    yield lanes, address
    await lanes.stop()


@pytest.fixture
async def hub() -> AsyncIterator[LaneHub]:
    lane_hub = LaneHub()
    yield lane_hub
    await lane_hub.close()


async def take_all(stream: OpenStream, count: int) -> list[Event]:
    """Return the next events, in however many batches they come."""
    events: list[Event] = []
    async with asyncio.timeout(5):
        async for batch in stream.mailbox.batches():
            events += batch
            if len(events) >= count:
                break
    return events


async def failure(stream: OpenStream) -> HeadpondError:
    """Return the error with which a stream ends."""
    with pytest.raises(HeadpondError) as raised:
        await take_all(stream, 1_000)
    return raised.value


ACCEPTED = Accepted(bundle="toy@1.0.0+abc", model="toy", work=Work(tokens=1))


async def test_each_stream_gets_its_own_events_in_order(
    server: tuple[LaneServer, LaneAddress], hub: LaneHub
) -> None:
    lanes, address = server
    await hub.connect(address)
    streams = [hub.open_stream(), hub.open_stream()]
    sent: dict[int, list[Event]] = {stream.number: [] for stream in streams}
    for stream in streams:
        assert lanes.send(hub.router_id, stream.number, ACCEPTED)
    for step in range(5):
        for stream in streams:
            events = (
                Output(0, f"{stream.number}:{step}"),
                Done(0, Work(output_tokens=step)),
            )
            sent[stream.number] += events
            lanes.send(hub.router_id, stream.number, events)
        await asyncio.sleep(0)
    for stream in streams:
        assert await take_all(stream, 10) == sent[stream.number]
        assert await stream.accepted == ACCEPTED


async def test_nothing_is_kept_for_a_router_without_a_lane(
    server: tuple[LaneServer, LaneAddress], hub: LaneHub
) -> None:
    lanes, address = server
    assert not lanes.is_open(hub.router_id)
    assert not lanes.send(hub.router_id, 0, (Output(0, "nobody reads this"),))
    await hub.connect(address)
    assert lanes.is_open(hub.router_id)


async def test_an_error_ends_a_stream_as_itself(
    server: tuple[LaneServer, LaneAddress], hub: LaneHub
) -> None:
    lanes, address = server
    await hub.connect(address)
    stream = hub.open_stream()
    lanes.send(hub.router_id, stream.number, ACCEPTED)
    lanes.send(hub.router_id, stream.number, DeadlineExceeded("too late", retry_after_s=2.0))
    error = await failure(stream)
    assert isinstance(error, DeadlineExceeded)
    assert (error.message, error.retry_after_s) == ("too late", 2.0)


async def test_streams_on_a_broken_lane_end_and_others_go_on(hub: LaneHub) -> None:
    dying, living = LaneServer(), LaneServer()
    await hub.connect(await dying.start("127.0.0.1"))
    await hub.connect(await living.start("127.0.0.1"))
    lost, kept = hub.open_stream(), hub.open_stream()
    dying.send(hub.router_id, lost.number, (Output(0, "last words"),))
    living.send(hub.router_id, kept.number, (Output(0, "fine"),))
    assert await take_all(lost, 1) == [Output(0, "last words")]
    assert await take_all(kept, 1) == [Output(0, "fine")]
    await dying.stop()
    assert isinstance(await failure(lost), WorkerLost)
    with pytest.raises(WorkerLost):
        await lost.accepted
    living.send(hub.router_id, kept.number, (Output(0, "still fine"),))
    assert await take_all(kept, 1) == [Output(0, "still fine")]
    await living.stop()


async def test_a_wrong_token_opens_nothing(server: tuple[LaneServer, LaneAddress]) -> None:
    lanes, address = server
    thief = LaneHub()
    with pytest.raises(WorkerLost):
        await thief.connect(replace(address, token=b"x" * 32))
    assert not lanes.is_open(thief.router_id)
    await thief.close()


async def test_an_address_where_nobody_listens_is_a_lost_worker(
    server: tuple[LaneServer, LaneAddress], hub: LaneHub
) -> None:
    lanes, address = server
    await lanes.stop()
    with pytest.raises(WorkerLost):
        await hub.connect(address)


async def test_what_comes_for_a_closed_stream_is_dropped(
    server: tuple[LaneServer, LaneAddress], hub: LaneHub
) -> None:
    lanes, address = server
    await hub.connect(address)
    gone, kept = hub.open_stream(), hub.open_stream()
    hub.close_stream(gone)
    lanes.send(hub.router_id, gone.number, (Output(0, "gone"),))
    lanes.send(hub.router_id, kept.number, (Output(0, "kept"),))
    assert await take_all(kept, 1) == [Output(0, "kept")]
    gone.mailbox.end((), None)
    assert await take_all(gone, 1) == []
