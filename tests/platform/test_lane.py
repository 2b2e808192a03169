"""The lane: events of many streams over one connection, and what happens when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from headpond.call import Done, Event, Output
from headpond.errors import DeadlineExceeded, HeadpondError, WorkerLost
from headpond.lane import Batch, LaneAddress, LaneHub, LaneServer
from headpond.mailbox import Mailbox
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


async def take(mailbox: Mailbox) -> Batch:
    """Return the next batch, or the error in its place."""
    try:
        async with asyncio.timeout(5):
            return tuple(await anext(aiter(mailbox.batches())))
    except HeadpondError as error:
        return error


async def take_all(mailbox: Mailbox, count: int) -> list[Event]:
    """Return the next events, in however many batches they come."""
    events: list[Event] = []
    async with asyncio.timeout(5):
        async for batch in mailbox.batches():
            events += batch
            if len(events) >= count:
                break
    return events


async def test_each_stream_gets_its_own_events_in_order(
    server: tuple[LaneServer, LaneAddress], hub: LaneHub
) -> None:
    lanes, address = server
    first, first_mailbox = hub.open_stream()
    second, second_mailbox = hub.open_stream()
    await hub.attach(first, address)
    await hub.attach(second, address)
    sent: dict[int, list[Event]] = {first: [], second: []}
    for step in range(5):
        for stream in (first, second):
            events = (Output(0, f"{stream}:{step}"), Done(0, Work(output_tokens=step)))
            sent[stream] += events
            lanes.send(hub.router_id, stream, events)
        await asyncio.sleep(0)
    assert await take_all(first_mailbox, 10) == sent[first]
    assert await take_all(second_mailbox, 10) == sent[second]


async def test_events_sent_before_the_lane_is_open_wait_for_it(
    server: tuple[LaneServer, LaneAddress], hub: LaneHub
) -> None:
    lanes, address = server
    stream, mailbox = hub.open_stream()
    lanes.send(hub.router_id, stream, (Output(0, "early"),))
    await asyncio.sleep(0.01)
    await hub.attach(stream, address)
    assert await take(mailbox) == (Output(0, "early"),)


async def test_an_error_ends_a_stream_as_itself(
    server: tuple[LaneServer, LaneAddress], hub: LaneHub
) -> None:
    lanes, address = server
    stream, mailbox = hub.open_stream()
    await hub.attach(stream, address)
    lanes.send(hub.router_id, stream, DeadlineExceeded("too late", retry_after_s=2.0))
    error = await take(mailbox)
    assert isinstance(error, DeadlineExceeded)
    assert (error.message, error.retry_after_s) == ("too late", 2.0)


async def test_streams_on_a_broken_lane_end_and_others_go_on(hub: LaneHub) -> None:
    dying, living = LaneServer(), LaneServer()
    dying_address = await dying.start("127.0.0.1")
    living_address = await living.start("127.0.0.1")
    lost, lost_mailbox = hub.open_stream()
    kept, kept_mailbox = hub.open_stream()
    await hub.attach(lost, dying_address)
    await hub.attach(kept, living_address)
    dying.send(hub.router_id, lost, (Output(0, "last words"),))
    assert not isinstance(await take(lost_mailbox), HeadpondError)
    await dying.stop()
    assert isinstance(await take(lost_mailbox), WorkerLost)
    living.send(hub.router_id, kept, (Output(0, "fine"),))
    assert await take(kept_mailbox) == (Output(0, "fine"),)
    await living.stop()


async def test_a_wrong_token_opens_nothing(server: tuple[LaneServer, LaneAddress]) -> None:
    lanes, address = server
    thief = LaneHub()
    stream, mailbox = thief.open_stream()
    await thief.attach(stream, replace(address, token=b"x" * 32))
    lanes.send(thief.router_id, stream, (Output(0, "secret"),))
    assert isinstance(await take(mailbox), WorkerLost)
    await thief.close()


async def test_an_address_where_nobody_listens_is_a_lost_worker(
    server: tuple[LaneServer, LaneAddress], hub: LaneHub
) -> None:
    lanes, address = server
    await lanes.stop()
    stream, _ = hub.open_stream()
    with pytest.raises(WorkerLost):
        await hub.attach(stream, address)


async def test_what_is_forgotten_is_never_sent(
    server: tuple[LaneServer, LaneAddress], hub: LaneHub
) -> None:
    lanes, address = server
    gone, gone_mailbox = hub.open_stream()
    kept, kept_mailbox = hub.open_stream()
    lanes.send(hub.router_id, gone, (Output(0, "gone"),))
    lanes.send(hub.router_id, kept, (Output(0, "kept"),))
    lanes.forget(hub.router_id, gone)
    await hub.attach(kept, address)
    assert await take(kept_mailbox) == (Output(0, "kept"),)
    gone_mailbox.end((), None)
    assert [batch async for batch in gone_mailbox.batches()] == []
