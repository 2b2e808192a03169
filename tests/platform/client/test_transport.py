"""What the client sends, and where it finds what it needs."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx2
import pytest

from headpond.errors import InvalidRequest
from headpond.testing.http_script import ScriptedBody, ScriptedServer, sse_response
from headpond_workloads.client import Client
from headpond_workloads.generation.params import ChatParams

Whole = Callable[..., str | None]
Texts = Callable[..., list[str | None]]
Answer = Callable[..., httpx2.Response]

DONE = "data: [DONE]\n\n"


def test_what_is_sent(whole: Whole, ask: ChatParams, answer: Answer) -> None:
    server = ScriptedServer(answer())
    assert whole(server, api_key="k", headers={"X-Own": "1"}) == "hey"
    (request,) = server.requests
    assert str(request.url) == "http://server/v1/chat/completions"
    assert json.loads(request.content) == dict(ask)
    sent = {"authorization": "Bearer k", "x-own": "1", "accept": "application/json"}
    assert sent.items() <= dict(request.headers).items()
    assert request.headers["user-agent"].startswith("headpond/")
    assert "x-headpond-deadline-ms" not in request.headers


def test_a_stream_is_asked_for_and_read_to_its_end(
    texts: Texts, chunk: Callable[[str], str]
) -> None:
    split = chunk("b")
    body = ScriptedBody(": hello\n\n", chunk("a"), split[:9], split[9:], DONE, ": timing\n\n")
    server = ScriptedServer(sse_response(body))
    assert texts(server) == ["a", "b"]
    (request,) = server.requests
    assert json.loads(request.content)["stream"] is True
    assert request.headers["accept"] == "text/event-stream"
    assert body.closed


def test_where_and_as_whom_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADPOND_BASE_URL", "http://there:1/models/chat/v1/")
    monkeypatch.setenv("HEADPOND_API_KEY", "from-env")
    server = ScriptedServer(httpx2.Response(200, json={"object": "list", "data": []}))
    with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
        assert Client(http_client=http).models.list().data == ()
    (request,) = server.requests
    assert str(request.url) == "http://there:1/models/chat/v1/models"
    assert request.headers["authorization"] == "Bearer from-env"


@pytest.mark.parametrize(
    ("setting", "value"),
    [("base_url", "server"), ("timeout_s", 0), ("deadline_s", -1), ("max_retries", -1)],
)
def test_settings_that_cannot_work_are_named(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=setting):
        Client(**{setting: value})  # type: ignore[arg-type]


def test_what_the_server_would_refuse_is_not_sent(whole: Whole, ask: ChatParams) -> None:
    ask["temperature"] = 7
    server = ScriptedServer()
    with pytest.raises(InvalidRequest) as refusal:
        whole(server)
    assert refusal.value.param == "temperature"
    assert server.requests == []


def test_what_json_cannot_express_is_refused(whole: Whole, ask: ChatParams) -> None:
    ask["extra_body"] = {"odd": object()}
    with pytest.raises(InvalidRequest):
        whole(ScriptedServer())


def test_fields_the_client_does_not_know_go_along(
    whole: Whole, ask: ChatParams, answer: Answer
) -> None:
    server = ScriptedServer(answer())
    known = dict(ask)
    ask["extra_body"] = {"new_field": [1]}
    whole(server)
    assert json.loads(server.requests[0].content) == {**known, "new_field": [1]}


def test_models_and_workloads() -> None:
    model = {"id": "a/b c", "object": "model", "created": 1, "owned_by": "x", "limits": {"n": 2}}
    record = {"name": "generation", "summary": "Says more.", "unserved": [1]}
    server = ScriptedServer(
        httpx2.Response(200, json={"object": "list", "data": [model]}),
        httpx2.Response(200, json=model),
        httpx2.Response(200, json={"object": "list", "data": [record]}),
    )
    with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
        client = Client(http_client=http)
        assert [one.id for one in client.models.list().data] == ["a/b c"]
        assert client.models.retrieve("a/b c").limits == {"n": 2}
        (workload,) = client.workloads()
    assert (workload.name, workload.model_extra) == ("generation", {"unserved": [1]})
    assert server.requests[1].url.raw_path == b"/v1/models/a/b%20c"


def test_options_change_a_copy_over_the_same_connections(ask: ChatParams, answer: Answer) -> None:
    server = ScriptedServer(answer(), answer())
    with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
        client = Client(http_client=http, headers={"a": "1"})
        with client.with_options(deadline_s=9, headers={"b": "2"}) as other:
            other.chat.completions.create(**ask)
        client.chat.completions.create(**ask)
    first, second = (dict(request.headers) for request in server.requests)
    assert {"a": "1", "b": "2"}.items() <= first.items()
    assert 0 < int(first["x-headpond-deadline-ms"]) <= 9000
    assert "b" not in second
    assert "x-headpond-deadline-ms" not in second
