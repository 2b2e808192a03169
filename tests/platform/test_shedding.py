"""Refusing at the edge: only while the event loop is late, and those who send most."""

from __future__ import annotations

import asyncio
import json
import pickle
import time
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from headpond.repeats import KEPT, MOST_S, PASSAGE, Passage, Repeats
from headpond.serve_edge import shed
from headpond.shedding import LATE_S, ROUNDS, TICK_S, LateLoop, Shedding
from headpond.testing.asgi import AsgiRequest

HEAVY, LIGHT = b"Bearer heavy", b"Bearer light"


def shedding(seed: int = 0) -> Shedding:
    return Shedding(Random(seed).random)  # noqa: S311 - load, not secrets


def late(edge: Shedding, late_s: float, rounds: int) -> None:
    for _ in range(rounds):
        edge.observe(late_s, TICK_S + late_s)


def test_nobody_is_refused_while_the_loop_is_in_time() -> None:
    edge = shedding()
    for _ in range(100):
        edge.observe(0.001, TICK_S)
        assert not any(edge.refuses(HEAVY) for _ in range(50))


def test_one_long_pause_is_no_load() -> None:
    edge = shedding()
    late(edge, 5.0, ROUNDS - 1)
    assert edge.part == 0.0
    assert not any(edge.refuses(HEAVY) for _ in range(100))


def test_more_is_refused_the_longer_the_loop_is_late_and_less_again_after() -> None:
    edge = shedding()
    parts = []
    for _ in range(60):
        for _ in range(20):
            edge.refuses(HEAVY)
        late(edge, 2 * LATE_S, 1)
        parts.append(edge.part)
    assert parts == sorted(parts)
    assert 0.9 < parts[-1] < 1.0
    assert any(edge.refuses(HEAVY) for _ in range(100))
    late(edge, 0.0, 200)
    assert edge.part == 0.0
    assert not edge.refuses(HEAVY)


def test_some_are_let_through_however_late_it_is() -> None:
    edge = shedding()
    came = passed = 0
    for _ in range(500):
        passed += sum(not edge.refuses(HEAVY) for _ in range(10))
        came += 10
        late(edge, 1.0, 1)
    assert 0 < passed < 0.05 * came


def test_who_sends_little_is_not_refused_for_who_sends_much() -> None:
    edge = shedding()
    refused = {HEAVY: 0, LIGHT: 0}
    for _ in range(20):
        for sender in (*[HEAVY] * 50, LIGHT):
            refused[sender] += edge.refuses(sender)
        late(edge, 2 * LATE_S, 1)
    assert 0.5 < edge.part < 0.9
    assert refused[LIGHT] == 0
    assert refused[HEAVY] > 100


def test_it_forgets_who_came_and_rests() -> None:
    edge = shedding()
    edge.refuses(LIGHT)
    assert not edge.idle
    late(edge, 0.0, 200)
    assert edge.idle


@given(
    rates=st.lists(st.integers(min_value=1, max_value=60), min_size=1, max_size=8),
    seed=st.integers(min_value=0, max_value=99),
)
def test_what_is_left_is_the_part_that_is_to_be_left_and_evenly_dealt(
    rates: list[int], seed: int
) -> None:
    edge = shedding(seed)
    senders = {str(each).encode(): rate for each, rate in enumerate(rates)}
    while edge.part < 0.5:
        for sender, rate in senders.items():
            for _ in range(rate):
                edge.refuses(sender)
        late(edge, 2 * LATE_S, 1)
    passed = dict.fromkeys(senders, 0)
    rounds = 300
    part = edge.part
    for _ in range(rounds):
        for sender, rate in senders.items():
            passed[sender] += sum(not edge.refuses(sender) for _ in range(rate))
        edge.observe(LATE_S, TICK_S)
    assert edge.part == pytest.approx(part, abs=0.1)
    kept = sum(passed.values()) / (rounds * sum(rates))
    assert kept == pytest.approx(1.0 - part, abs=0.15)
    order = sorted(senders, key=lambda sender: senders[sender])
    for fewer, more in pairwise(order):
        assert passed[fewer] <= 1.2 * passed[more] + 20


async def test_a_loop_is_watched_only_while_requests_come() -> None:
    edge = shedding()
    watching = LateLoop(edge)
    edge.refuses(LIGHT)
    watching.watch()
    for _ in range(3 * ROUNDS):
        time.sleep(0.05)  # noqa: ASYNC251 - the loop is to be late
        await asyncio.sleep(0)
    assert edge.part > 0.0


async def test_a_late_server_refuses_what_asks_for_work_and_nothing_else() -> None:
    counts = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        counts.append(scope[PASSAGE].refused)
        time.sleep(0.0 if scope["method"] == "GET" else 0.06)  # noqa: ASYNC251
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = shed(slow)
    asked: list[AsgiRequest] = []
    while not asked or asked[-1].status == 200:
        asked.append(await AsgiRequest(path="/v1/echo", headers={"authorization": "k"}).run(app))
        assert (await AsgiRequest(path="/healthz", method="GET").run(app)).status == 200
        await asyncio.sleep(0)
    refusal = asked[-1]
    assert refusal.status == 503
    assert json.loads(refusal.body)["error"]["code"] == "overloaded"
    assert refusal.answer_headers["retry-after"] == "1"
    assert refusal.answer_headers["content-length"] == str(len(refusal.body))
    assert counts[0] == 0
    assert counts[-1] == 1


def test_what_is_like_one_that_was_refused_is_refused_until_one_may_come() -> None:
    repeats = Repeats()
    repeats.refuse(("/v1/echo", b"a"), 0.1, 5.0)
    assert repeats.refuses(("/v1/echo", b"a"), 5.09)
    assert not repeats.refuses(("/v1/echo", b"b"), 5.09)
    assert not repeats.refuses(("/v1/echo", b"a"), 5.11)
    repeats.refuse(("/v1/echo", b"a"), 60.0, 6.0)
    assert not repeats.refuses(("/v1/echo", b"a"), 6.01 + MOST_S)


def test_so_many_are_remembered_at_most() -> None:
    repeats = Repeats()
    for number in range(2 * KEPT):
        repeats.refuse((str(number),), MOST_S, 0.0)
    assert sum(repeats.refuses((str(number),), 0.1) for number in range(2 * KEPT)) == KEPT
    repeats.refuse(("new",), MOST_S, 1.0)
    assert repeats.refuses(("new",), 1.1)


async def test_an_app_has_the_edge_refuse_what_is_like_a_request() -> None:
    seen = []

    async def busy(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        seen.append(scope["path"])
        scope[PASSAGE].refuse_alike(60.0)
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = shed(busy)
    for headers in ({"authorization": "a"}, {"authorization": "b"}, {"authorization": "a"}):
        for path in ("/v1/echo", "/v1/other"):
            await AsgiRequest(path=path, headers=headers).run(app)
            deadline = {**headers, "x-headpond-deadline-ms": "5"}
            await AsgiRequest(path=path, headers=deadline).run(app)
    assert seen == ["/v1/echo", "/v1/echo", "/v1/other", "/v1/other"] * 2


def test_a_passage_crosses_process_borders_without_its_edge() -> None:
    passage = pickle.loads(pickle.dumps(Passage(3, lambda _: None)))  # noqa: S301 - our own
    passage.refuse_alike(1.0)
    assert passage.refused == 3
