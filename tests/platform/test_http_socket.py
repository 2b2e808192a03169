"""Conversations over WebSockets: handshakes, input held up, clients that are cut off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headpond.call import Answer, Call, Done, Ended, Output
from headpond.errors import InvalidRequest, Overloaded, WorkerLost
from headpond.http import line as line_module
from headpond.http import session as session_module
from headpond.http import socket as socket_module
from headpond.http.app import ASGIApp, build_app
from headpond.http.stray import with_strays
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest, AsgiSocket
from headpond.testing.listening import Letters, ListeningEngine, Silence
from headpond.testing.talking import TALK_PATH, talking_record
from headpond.units import Work
from talks import ACCEPTED, HeldBackend, looping

KEYS = {
    "keys": [
        {"key": "sk-one", "tenant": "one", "models": ["ear"]},
        {"key": "sk-two", "tenant": "two"},
        {"key": "sk-deaf", "tenant": "deaf", "workloads": ["vision"]},
    ]
}


@pytest.fixture
def backend() -> HeldBackend:
    return HeldBackend()


def app_over(backend: HeldBackend, **settings: object) -> ASGIApp:
    return build_app([talking_record()], backend, Settings.model_validate(settings))


def events(socket: AsgiSocket) -> list[dict[str, Any]]:
    return [json.loads(text) for text in socket.texts]


async def until(socket: AsgiSocket, key: str) -> dict[str, Any]:
    """Return the first event that has a key, when it has come."""
    while True:
        for event in events(socket):
            if key in event:
                return event
        assert not socket.over, socket.messages
        try:
            async with asyncio.timeout(5.0):
                await socket.until(len(socket.messages) + 1)
        except TimeoutError:
            pytest.fail(f"no {key} among {events(socket)}")


async def soon(condition: Callable[[], object]) -> None:
    """Wait until something holds that nothing tells about."""
    async with asyncio.timeout(5.0):
        while not condition():  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0.0005)


async def metric(app: ASGIApp, name: str) -> float:
    text = (await AsgiRequest(path="/metrics", method="GET").run(app)).body.decode()
    values = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(name)]
    return float(values[0]) if values else 0.0


async def speaking(app: ASGIApp, **fields: Any) -> AsgiSocket:
    """Connect and open a call."""
    socket = await AsgiSocket(path=TALK_PATH, **fields).open(app)
    socket.say('{"open": "ear"}')
    await until(socket, "opened")
    return socket


async def test_a_conversation_from_greeting_to_hang_up(backend: HeldBackend) -> None:
    app = app_over(backend)
    socket = await speaking(app, headers={"x-request-id": "r-7"}, subprotocols=["realtime"])
    assert socket.messages[0] == {
        "type": "websocket.accept",
        "subprotocol": "realtime",
        "headers": [(b"x-request-id", b"r-7")],
    }
    assert await metric(app, 'headpond_sessions{state="connected"}') == 1
    socket.say('{"say": "hello"}')
    socket.say(b"bytes")
    socket.say('{"end": true}')
    await until(socket, "heard")
    answer = backend.answers[0]
    await soon(lambda: len(answer.fed) >= 3)
    answer.given.put_nowait([Output(0, "hello")])
    answer.given.put_nowait([Done(0, Work(letters=5)), Ended(Work(letters=5))])
    await until(socket, "ended")
    assert answer.fed == [Letters("hello"), Letters("bytes"), Silence()]
    assert answer.closed
    (call,) = backend.calls
    assert (call.request_id, call.model, call.stream, call.deadline_s > 3500) == (
        "r-7",
        "ear",
        True,
        True,
    )
    socket.say('{"open": "ear"}')
    socket.say('{"bye": "done"}')
    await socket.ended()
    assert socket.closed == (1000, "done")
    assert [event["number"] for event in events(socket)] == list(range(1, len(socket.texts) + 1))
    assert backend.calls[1].request_id == "r-7/2"
    assert await metric(app, 'headpond_sessions{state="connected"}') == 0
    assert await metric(app, 'headpond_sessions_ended_total{reason="hung_up"}') == 1
    assert await metric(app, f'headpond_http_responses_total{{route="{TALK_PATH}"') == 1


@pytest.mark.parametrize(
    ("headers", "subprotocols", "status"),
    [
        ({}, [], 401),
        ({"authorization": "Bearer sk-wrong"}, [], 401),
        ({}, ["realtime", "openai-insecure-api-key.sk-wrong"], 401),
        ({"authorization": "Bearer sk-deaf"}, [], 403),
        ({"authorization": "Bearer sk-one"}, [], None),
        ({}, ["openai-insecure-api-key.sk-one", "realtime"], None),
    ],
)
async def test_a_key_is_needed_before_anything_is_said(
    backend: HeldBackend, headers: dict[str, str], subprotocols: list[str], status: int | None
) -> None:
    app = app_over(backend, **KEYS)
    socket = await AsgiSocket(path=TALK_PATH, headers=headers, subprotocols=subprotocols).open(app)
    first = socket.messages[0]
    if status is None:
        assert first["type"] == "websocket.accept"
        assert first["subprotocol"] == ("realtime" if subprotocols else None)
        socket.hang_up(1000)
        await socket.ended()
        return
    await socket.ended()
    assert (first["type"], first["status"]) == ("websocket.http.response.start", status)
    assert socket.messages[1]["type"] == "websocket.http.response.body"
    error = json.loads(socket.messages[1]["body"])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    bare = await AsgiSocket(
        path=TALK_PATH, headers=headers, subprotocols=subprotocols, extensions=()
    ).open(app)
    assert bare.messages[0]["type"] == "websocket.close"
    assert bare.messages[0]["code"] == 4000 + status


async def test_a_key_opens_only_its_models(backend: HeldBackend) -> None:
    app = app_over(backend, **KEYS)
    key = {"authorization": "Bearer sk-one"}
    socket = await AsgiSocket(path=TALK_PATH, headers=key).open(app)
    socket.say('{"open": "other"}')
    assert (await until(socket, "error"))["error"] == "permission_denied"
    assert not backend.calls
    socket.say('{"open": "ear"}')
    await until(socket, "opened")
    socket.hang_up(1000)
    await socket.ended()


async def test_where_there_is_no_socket(backend: HeldBackend) -> None:
    app = app_over(backend)
    nowhere = await AsgiSocket(path="/v1/nowhere").open(app)
    assert nowhere.messages[0]["status"] == 404
    plain = await AsgiRequest(path=TALK_PATH, method="GET").run(app)
    assert (plain.status, plain.answer_headers["upgrade"]) == (426, "websocket")
    assert json.loads(plain.body)["error"]["code"] == "upgrade_required"


async def test_below_the_prefix_of_a_model_that_one_is_meant(backend: HeldBackend) -> None:
    app = with_strays(app_over(backend), {"ear"}.__contains__)
    socket = await AsgiSocket(path=f"/models/ear{TALK_PATH}").open(app)
    socket.say('{"open": null}')
    await until(socket, "opened")
    assert backend.calls[0].model == "ear"
    socket.hang_up(1000)
    await socket.ended()


async def test_the_document_knows_the_handshake(backend: HeldBackend) -> None:
    answer = await AsgiRequest(path="/openapi.json", method="GET").run(app_over(backend))
    operation = json.loads(answer.body)["paths"][TALK_PATH]["get"]
    assert {"101", "401", "404", "426", "429", "503"} <= set(operation["responses"])


async def test_while_input_waits_the_socket_is_not_read_but_outputs_go_on(
    backend: HeldBackend,
) -> None:
    socket = await speaking(app_over(backend))
    answer = backend.answers[0]
    answer.room.clear()
    for letter in "abcdef":
        socket.say(json.dumps({"say": letter}))
    answer.given.put_nowait([Output(0, "still here")])
    assert (await until(socket, "given"))["given"] == "still here"
    for _ in range(20):
        await asyncio.sleep(0)
    assert socket.received == 4  # connect, open, the one that waits, and the one after it
    answer.room.set()
    socket.say('{"end": true}')
    await soon(lambda: len(answer.fed) >= 7)
    assert answer.fed == [*map(Letters, "abcdef"), Silence()]
    socket.hang_up(1000)
    await socket.ended()


async def test_a_client_that_leaves_while_its_input_waits_is_noticed_and_loses_nothing(
    backend: HeldBackend,
) -> None:
    app = app_over(backend)
    socket = await speaking(app)
    answer = backend.answers[0]
    answer.room.clear()
    socket.say('{"say": "last words"}')
    await until(socket, "heard")
    socket.hang_up()
    await socket.ended()
    assert await metric(app, 'headpond_sessions{state="away"}') == 1
    answer.room.set()
    await soon(lambda: answer.fed)
    assert answer.fed == [Letters("last words")]


async def test_what_was_missed_is_said_to_who_comes_back(backend: HeldBackend) -> None:
    app = app_over(backend)
    first = await speaking(app)
    session = events(first)[0]["session"]
    last = events(first)[-1]["number"]
    first.hang_up()
    await first.ended()
    answer = backend.answers[0]
    for word in ("one", "two"):
        answer.given.put_nowait([Output(0, word)])
    await soon(answer.given.empty)
    again = AsgiSocket(path=TALK_PATH, query=f"session={session}&last_event={last}")
    await again.open(app)
    await until(again, "resumed")
    said = [event.get("given") for event in events(again)]
    assert said == ["one", "two", None]
    assert [event["number"] for event in events(again)] == [last + 1, last + 2, last + 3]
    again.say('{"say": "more"}')
    await until(again, "heard")
    assert answer.fed == [Letters("more")]
    assert await metric(app, "headpond_sessions_resumed_total") == 1
    again.hang_up(1000)
    await again.ended()
    await soon(lambda: answer.closed)


@pytest.mark.parametrize(("model", "status"), [("nobody", 404), ("ear", 101)])
async def test_a_model_is_looked_for_before_anything_is_said(
    backend: HeldBackend, model: str, status: int
) -> None:
    app = app_over(backend)
    socket = await AsgiSocket(path=TALK_PATH, query=f"model={model}").open(app)
    if status == 404:
        await socket.ended()
        assert socket.messages[0]["status"] == status
        assert json.loads(socket.messages[1]["body"])["error"]["code"] == "model_not_found"
    else:
        socket.hang_up(1000)
        await socket.ended()
        assert socket.messages[0]["type"] == "websocket.accept"


async def test_a_page_that_is_loaded_again_comes_back_by_the_name_of_an_event(
    backend: HeldBackend,
) -> None:
    app = app_over(backend)
    first = await speaking(app)
    session = events(first)[0]["session"]
    last = events(first)[-1]["number"]
    first.hang_up(1001)
    await first.ended()
    query = f"session={session}&last_event=event_{last}"
    again = await AsgiSocket(path=TALK_PATH, query=query).open(app)
    await until(again, "resumed")
    assert [event["number"] for event in events(again)] == [last + 1]
    again.hang_up(1000)
    await again.ended()


async def test_a_second_connection_takes_the_session_over(backend: HeldBackend) -> None:
    app = app_over(backend)
    first = await speaking(app)
    session = events(first)[0]["session"]
    second = await AsgiSocket(path=TALK_PATH, query=f"session={session}&last_event=2").open(app)
    await first.ended()
    assert first.closed == (1008, "the session was resumed over another connection")
    first.say('{"say": "ghost"}')
    second.say('{"say": "alive"}')
    await until(second, "heard")
    assert backend.answers[0].fed == [Letters("alive")]
    second.hang_up(1000)
    await second.ended()


@pytest.mark.parametrize(
    ("query", "status", "param"),
    [
        ("session=sess_nobody", 404, None),
        ("session={session}&last_event=x", 400, "last_event"),
        ("session={session}&last_event=-1", 400, "last_event"),
        ("session={session}&last_event=event_", 400, "last_event"),
        ("session={session}&last_event=999", 400, "last_event"),
    ],
)
async def test_a_session_that_cannot_be_resumed(
    backend: HeldBackend, query: str, status: int, param: str | None
) -> None:
    app = app_over(backend)
    first = await speaking(app)
    query = query.format(session=events(first)[0]["session"])
    again = await AsgiSocket(path=TALK_PATH, query=query).open(app)
    await again.ended()
    assert again.messages[0]["status"] == status
    assert json.loads(again.messages[1]["body"])["error"]["param"] == param
    first.say('{"say": "untouched"}')
    await until(first, "heard")
    first.hang_up(1000)
    await first.ended()


async def test_sessions_of_other_tenants_are_not_there(backend: HeldBackend) -> None:
    app = app_over(backend, **KEYS)
    first = await speaking(app, headers={"authorization": "Bearer sk-one"})
    query = f"session={events(first)[0]['session']}&last_event=1"
    first.hang_up()
    await first.ended()
    theirs = {"authorization": "Bearer sk-two"}
    stolen = await AsgiSocket(path=TALK_PATH, query=query, headers=theirs).open(app)
    await stolen.ended()
    assert stolen.messages[0]["status"] == 404


async def test_the_window_to_come_back_closes(backend: HeldBackend) -> None:
    app = app_over(backend, sessions={"resume_s": 0.01})
    first = await speaking(app)
    session = events(first)[0]["session"]
    first.hang_up()
    await first.ended()
    assert not backend.answers[0].closed
    await soon(lambda: backend.answers[0].closed)
    late = await AsgiSocket(path=TALK_PATH, query=f"session={session}").open(app)
    assert late.messages[0]["status"] == 404
    assert await metric(app, 'headpond_sessions_ended_total{reason="expired"}') == 1


async def test_what_was_said_too_long_ago_is_refused_not_left_out(
    backend: HeldBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_REPLAY_BYTES", 100)
    app = app_over(backend)
    first = await speaking(app)
    for number in range(10):
        first.say(json.dumps({"say": f"word {number}"}))
    await first.until(13)
    session = events(first)[0]["session"]
    first.hang_up()
    await first.ended()
    late = await AsgiSocket(path=TALK_PATH, query=f"session={session}&last_event=2").open(app)
    assert late.messages[0]["status"] == 404
    last = events(first)[-1]["number"]
    query = f"session={session}&last_event={last}"
    again = await AsgiSocket(path=TALK_PATH, query=query).open(app)
    await until(again, "resumed")
    again.hang_up(1000)
    await again.ended()


async def test_a_slow_reader_is_cut_off_and_can_come_back(
    backend: HeldBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_module, "_CLOSE_S", 0.01)
    app = app_over(backend)
    slow = await speaking(app)
    session = events(slow)[0]["session"]
    last = len(slow.texts)
    slow.reading.clear()
    for number in range(12):
        backend.answers[0].given.put_nowait([Output(0, f"{number}:" + "x" * 50_000)])
    await slow.ended()
    assert slow.closed is None  # it read nothing, not even that
    query = f"session={session}&last_event={last}"
    again = await AsgiSocket(path=TALK_PATH, query=query).open(app)
    await until(again, "resumed")
    given = [event["given"].partition(":")[0] for event in events(again) if "given" in event]
    assert given == [str(number) for number in range(12)]
    again.hang_up(1000)
    await again.ended()


async def test_a_slow_reader_that_reads_on_is_told(backend: HeldBackend) -> None:
    slow = await speaking(app_over(backend))
    slow.reading.clear()
    for _ in range(12):
        backend.answers[0].given.put_nowait([Output(0, "x" * 50_000)])
    await soon(backend.answers[0].given.empty)
    slow.reading.set()
    await slow.ended()
    assert slow.closed == (1008, "messages are read too slowly")


async def test_a_message_that_is_too_long_is_not_heard(backend: HeldBackend) -> None:
    app = app_over(backend, sessions={"message_bytes": 40})
    socket = await speaking(app)
    socket.say("x" * 41)
    await socket.ended()
    assert socket.closed == (1009, "the message is too long")
    assert await metric(app, 'headpond_sessions{state="away"}') == 1


async def test_a_tenant_has_so_many_sessions_and_lost_ones_give_way(backend: HeldBackend) -> None:
    limits = {"per_tenant": 2, "in_all": 3}
    app = app_over(backend, sessions=limits, **KEYS)
    one, two = ({"authorization": f"Bearer sk-{name}"} for name in ("one", "two"))
    kept = [await speaking(app, headers=one) for _ in range(2)]
    refused = await AsgiSocket(path=TALK_PATH, headers=one).open(app)
    await refused.ended()
    answer = dict(refused.messages[0]["headers"])
    assert (refused.messages[0]["status"], answer[b"retry-after"]) == (429, b"5")
    kept[0].hang_up()
    await kept[0].ended()
    kept.append(await speaking(app, headers=one))
    await soon(lambda: backend.answers[0].closed)
    kept.append(await speaking(app, headers=two))
    full = await AsgiSocket(path=TALK_PATH, headers=two).open(app)
    await full.ended()
    assert full.messages[0]["status"] == 503
    for socket in kept[1:]:
        socket.hang_up(1000)
        await socket.ended()


async def test_a_lost_worker_is_told_and_another_call_may_follow(backend: HeldBackend) -> None:
    socket = await speaking(app_over(backend))
    lost = backend.answers[0]
    lost.refusal = WorkerLost()
    socket.say('{"say": "into the void"}')
    lost.given.put_nowait(WorkerLost())
    assert (await until(socket, "error"))["error"] == "worker_lost"
    assert lost.closed
    socket.say('{"say": "nobody listens"}')
    socket.say('{"open": "ear"}')
    socket.say('{"say": "again"}')
    await soon(lambda: len(backend.answers) == 2 and backend.answers[1].fed)
    assert backend.answers[1].fed == [Letters("again")]
    socket.hang_up(1000)
    await socket.ended()


async def test_input_that_is_refused_ends_the_call(
    backend: HeldBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_LAST_WORDS_S", 0.01)
    socket = await speaking(app_over(backend))
    backend.answers[0].refusal = InvalidRequest("too much")
    socket.say('{"say": "too much"}')
    assert (await until(socket, "error"))["error"] is None
    assert backend.answers[0].closed
    socket.hang_up(1000)
    await socket.ended()


async def test_input_that_is_refused_when_the_call_is_over_already(backend: HeldBackend) -> None:
    socket = await speaking(app_over(backend))
    lost = backend.answers[0]
    lost.room.clear()
    socket.say('{"say": "on its way"}')
    await until(socket, "heard")
    lost.given.put_nowait(WorkerLost())
    assert (await until(socket, "error"))["error"] == "worker_lost"
    lost.refusal = WorkerLost()
    lost.room.set()
    socket.say('{"open": "ear"}')
    socket.say('{"say": "again"}')
    await soon(lambda: len(backend.answers) == 2 and backend.answers[1].fed)
    socket.hang_up(1000)
    await socket.ended()


async def test_a_refused_call_leaves_the_session_open(backend: HeldBackend) -> None:
    app = app_over(backend)
    socket = await AsgiSocket(path=TALK_PATH).open(app)
    backend.refusal = Overloaded()
    socket.say('{"open": "ear"}')
    assert (await until(socket, "error"))["error"] == "overloaded"
    backend.refusal = None
    socket.say('{"open": "ear"}')
    await until(socket, "opened")
    socket.hang_up(1000)
    await socket.ended()


class FullBackend(HeldBackend):
    """Has places for so many calls; one is free some time after a call was let go."""

    def __init__(self, places: int, lag: int) -> None:
        super().__init__()
        self.places, self.lag = places, lag

    async def submit(self, call: Call) -> Answer:
        held = sum(not answer.closed for answer in self.answers)
        if held < self.places and len(self.answers) >= self.places:
            self.lag -= 1
        if held >= self.places or self.lag > 0:
            self.calls.append(call)
            raise Overloaded
        return await super().submit(call)


async def test_who_is_there_gets_the_place_of_who_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_module, "_TRY_S", 0.001)
    backend = FullBackend(places=2, lag=0)
    app = app_over(backend)
    away, stays = await speaking(app), await speaking(app)
    away.hang_up()
    await away.ended()
    backend.lag = 3
    newcomer = await speaking(app)
    assert [answer.closed for answer in backend.answers] == [True, False, False]
    assert len(backend.calls) == 2 + 4
    refused = await AsgiSocket(path=TALK_PATH).open(app)
    refused.say('{"open": "ear"}')
    assert (await until(refused, "error"))["error"] == "overloaded"
    assert len(backend.calls) == 2 + 4 + 1, "nobody is away: it is not tried again"
    for socket in (stays, newcomer, refused):
        socket.hang_up(1000)
        await socket.ended()


async def test_who_is_away_from_another_model_gives_up_nothing() -> None:
    backend = FullBackend(places=1, lag=0)
    app = app_over(backend)
    away = await speaking(app)
    away.hang_up()
    await away.ended()
    backend.answers[0].accepted = replace(ACCEPTED, model="other")
    refused = await AsgiSocket(path=TALK_PATH).open(app)
    refused.say('{"open": "ear"}')
    assert (await until(refused, "error"))["error"] == "overloaded"
    assert not backend.answers[0].closed
    refused.hang_up(1000)
    await refused.ended()


async def test_how_much_waits_is_asked_about_while_a_call_runs(
    backend: HeldBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_TICK_S", 0.001)
    socket = await speaking(app_over(backend))
    backend.answers[0].waiting_units = 7
    assert (await until(socket, "behind"))["behind"] == 7
    socket.hang_up(1000)
    await socket.ended()


async def test_a_fault_in_a_dialect_ends_its_session_only(
    backend: HeldBackend, capfd: pytest.CaptureFixture[str]
) -> None:
    app = app_over(backend)
    other, faulty = await speaking(app), await speaking(app)
    faulty.say("{no json")
    await faulty.ended()
    assert faulty.closed == (1011, "internal error")
    assert "session_fault" in capfd.readouterr().err
    other.say('{"say": "fine"}')
    await until(other, "heard")
    other.hang_up(1000)
    await other.ended()
    assert await metric(app, 'headpond_sessions{state="connected"}') == 0


async def test_a_session_lasts_as_long_as_it_may(backend: HeldBackend) -> None:
    socket = await speaking(app_over(backend, sessions={"longest_s": 0.05}))
    assert backend.calls[0].deadline_s <= 0.05
    await socket.ended()
    assert socket.closed == (1008, "The session has lasted as long as it may.")
    assert events(socket)[-1]["error"] == "deadline_exceeded"


async def test_when_the_server_stops_everybody_is_told(backend: HeldBackend) -> None:
    app = app_over(backend)
    speaks, away = await speaking(app), await speaking(app)
    away.hang_up()
    await away.ended()
    stages: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    answers: asyncio.Queue[Any] = asyncio.Queue()

    async def serve() -> None:
        await app({"type": "lifespan"}, stages.get, answers.put)

    serving = asyncio.create_task(serve())
    for stage in ("startup", "shutdown"):
        stages.put_nowait({"type": f"lifespan.{stage}"})
        assert (await answers.get())["type"] == f"lifespan.{stage}.complete"
    await serving
    await speaks.ended()
    assert speaks.closed == (1012, "the server is stopping")
    assert events(speaks)[-1]["error"] == "worker_lost"
    assert all(answer.closed for answer in backend.answers)
    late = await AsgiSocket(path=TALK_PATH).open(app)
    assert late.messages[0]["status"] == 503


@pytest.mark.parametrize("way", ["drop", "abort", "close"])
async def test_nothing_is_left_of_two_hundred_visits(backend: HeldBackend, way: str) -> None:
    app = app_over(backend, sessions={"resume_s": 0.0})
    before = asyncio.all_tasks()
    for cycle in range(200):
        socket = await speaking(app)
        backend.answers[-1].room.clear() if cycle % 2 else None
        socket.say('{"say": "hello"}')
        await until(socket, "heard")
        if way == "abort":
            socket.abort()
        else:
            socket.hang_up(1006 if way == "drop" else 1000)
        await socket.ended()
    await soon(lambda: asyncio.all_tasks() == before)
    assert all(answer.closed for answer in backend.answers)
    for state in ("connected", "away"):
        assert await metric(app, f'headpond_sessions{{state="{state}"}}') == 0


async def test_through_the_real_loop_every_letter_comes_back_across_a_break() -> None:
    engine = ListeningEngine()
    async with looping(engine, ahead=6) as backend:
        app = app_over(backend)
        socket = await speaking(app)
        session = events(socket)[0]["session"]
        for word in ("abcdefghi", "jklm", "n"):
            socket.say(json.dumps({"say": word}))
        await until(socket, "given")
        socket.hang_up()
        await socket.ended()
        last = events(socket)[-1]["number"]
        again = AsgiSocket(path=TALK_PATH, query=f"session={session}&last_event={last}")
        await again.open(app)
        again.say('{"say": "opq"}')
        again.say('{"end": true}')
        ended = await until(again, "ended")
        both = [*events(socket), *events(again)]
        assert "".join(event.get("given", "") for event in both) == "abcdefghijklmnopq"
        assert [event["number"] for event in both if "number" in event] == list(
            range(1, both[-1]["number"] + 1)
        )
        assert ended["ended"] == {"letters": 17}
        again.hang_up(1000)
        await again.ended()
    assert not engine.open


async def test_through_the_real_loop_nothing_is_left_of_clients_that_drop() -> None:
    engine = ListeningEngine()
    async with looping(engine) as backend:
        app = app_over(backend, sessions={"resume_s": 0.0})
        for _ in range(20):
            socket = await speaking(app)
            socket.say('{"say": "hello"}')
            await until(socket, "heard")
            socket.hang_up()
            await socket.ended()
            await soon(lambda: backend.rests)
        assert not engine.open
        assert await metric(app, 'headpond_sessions{state="connected"}') == 0


async def test_each_call_of_a_session_is_counted_once_however_it_ends(
    backend: HeldBackend,
) -> None:
    app = app_over(backend)
    came = 'headpond_http_received_total{workload="listening"}'
    still = 'headpond_http_open{workload="listening"}'
    finished = 'headpond_http_finished_total{outcome="%s",workload="listening"}'
    socket = await speaking(app)
    assert (await metric(app, came), await metric(app, still)) == (1, 1)
    backend.answers[0].given.put_nowait([Ended(Work())])
    await until(socket, "ended")
    assert await metric(app, finished % "ok") == 1
    socket.hang_up(1000)
    await socket.ended()
    broken = await speaking(app)
    backend.answers[1].given.put_nowait(WorkerLost())
    await until(broken, "error")
    assert await metric(app, finished % "worker_lost") == 1
    broken.hang_up(1000)
    await broken.ended()
    left = await speaking(app)
    left.hang_up(1000)
    await left.ended()
    await soon(lambda: backend.answers[2].closed)
    assert await metric(app, finished % "request_cancelled") == 1
    backend.refusal = Overloaded()
    refused = await AsgiSocket(path=TALK_PATH).open(app)
    refused.say('{"open": "ear"}')
    await until(refused, "error")
    code = 'headpond_http_refused_total{code="overloaded",workload="listening"}'
    assert await metric(app, code) == 1
    assert (await metric(app, came), await metric(app, still)) == (4, 0)
    refused.hang_up(1000)
    await refused.ended()
