"""Routes that are more than JSON in, JSON out: forms, raw bodies, paths, errors of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, RootModel

from headpond.call import Accepted, Ended, ModelCard, Output
from headpond.dialect import (
    Ask,
    ErrorAnswer,
    Exchange,
    Heading,
    Incoming,
    ItemEvent,
    Raw,
    Route,
    StreamWriter,
    Unserved,
)
from headpond.errors import DeclarationError, HeadpondError, InvalidRequest
from headpond.form import read_form
from headpond.http.app import build_app
from headpond.http.stray import with_strays
from headpond.record import WorkloadRecord
from headpond.settings import Settings
from headpond.testing.formed import MeasuringItem, measuring_record
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work


class Picture(BaseModel):
    """Wire type of a form or of JSON."""

    picture: bytes
    model: str | None = None
    top: int = 1
    tags: list[str] = []


class Answer(RootModel[list[str]]):
    """A bare list."""


@dataclass(frozen=True)
class Toy(Exchange):
    """Answers with what it read."""

    model: str | None
    seen: tuple[str, ...]
    raw: bool = False

    def ask(self) -> Ask:
        if "fail" in self.seen:
            raise InvalidRequest("no", param="picture")
        return Ask(model=self.model, items=(MeasuringItem(text="".join(self.seen)),))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> BaseModel | Raw:
        del events, work
        if self.raw:
            headers = (("x-seen", str(len(self.seen))),)
            return Raw(content=b"\x00\xff", media_type="application/octet-stream", headers=headers)
        return Answer([heading.model, *self.seen])

    def stream(self, heading: Heading) -> StreamWriter:
        raise NotImplementedError


def from_picture(given: Picture) -> Toy:
    return Toy(given.model, (given.picture.hex(), str(given.top), *given.tags))


def own_error(error: HeadpondError) -> ErrorAnswer:
    return ErrorAnswer(status=422, body={"oops": error.message})


PICTURES = Route.json(
    "/pictures",
    "Look at one",
    request=Picture,
    exchange=from_picture,
    response=Answer,
    form=True,
    example={"picture": "a"},
    fail=own_error,
)
SHOW = Route.get(
    "/show/{model}/{what}",
    "Show something",
    exchange=lambda incoming: Toy(incoming.path["model"], (incoming.path["what"],), raw=True),
    response=Answer,
)
INFO = Route.get(
    "/info",
    "Say what it is",
    exchange=lambda incoming: Toy(None, (incoming.content_type,)),
    response=Answer,
)


def records() -> list[WorkloadRecord]:
    unserved = (Unserved("/paintings", own_error), Unserved("/gallery/", own_error))
    pictures = replace(measuring_record(), routes=(PICTURES, SHOW, INFO), unserved=unserved)
    return [pictures, replace(pictures, name="other", routes=(SHOW, INFO))]


def card(name: str, workload: str) -> ModelCard:
    return ModelCard(name=name, workload=workload, bundles=("b@1+0",), created_s=1, limits={})


@pytest.fixture
def backend() -> ScriptedBackend:
    return ScriptedBackend(
        accepted=Accepted(bundle="b@1+0", model="m", work=Work()),
        cards=(card("m", "measuring"), card("o", "other"), card("o2", "other")),
        steps=[[Output(0, 1), Ended(Work())]],
    )


@pytest.fixture
async def client(backend: ScriptedBackend) -> AsyncIterator[httpx2.AsyncClient]:
    app = build_app(records(), backend, Settings())
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def test_a_form_and_json_mean_the_same(client: httpx2.AsyncClient) -> None:
    files: Any = {"picture": ("a.png", b"\x01\x02", "image/png")}
    form = await client.post("/pictures", files=files, data={"top": "3", "tags": ["a", "b"]})
    assert form.json() == ["m", "0102", "3", "a", "b"]
    plain = await client.post(
        "/pictures", json={"picture": "\x01\x02", "top": 3, "tags": ["a", "b"]}
    )
    assert plain.json() == form.json()


async def test_one_tag_in_brackets_is_a_list(client: httpx2.AsyncClient) -> None:
    files: Any = {"picture": ("a.png", b"", "image/png")}
    form = await client.post("/pictures", files=files, data={"tags[]": "a"})
    assert form.json() == ["m", "", "1", "a"]


@pytest.mark.parametrize(
    ("body", "content_type", "says"),
    [
        (b"--x\r\n", "multipart/form-data; boundary=x", "not a valid form"),
        (b"", "multipart/form-data; boundary=x", "body is empty"),
        (b"abc", "multipart/form-data", "must name its boundary"),
        (b"abc", "multipart/form-data; boundary=x", "not a valid form"),
        (
            b'--x\r\nContent-Disposition: form-data; name="top"\r\n\r\nmany\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
            "picture",
        ),
        (
            b'--x\r\nContent-Disposition: form-data; name="picture"\r\n\r\n\xff\xd8\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
            "is no text, and no file either",
        ),
        (b"{}", "application/json", "picture"),
    ],
)
async def test_bad_bodies_get_the_dialects_own_error(
    client: httpx2.AsyncClient, body: bytes, content_type: str, says: str
) -> None:
    answer = await client.post("/pictures", content=body, headers={"content-type": content_type})
    assert answer.status_code == 422
    assert says in answer.json()["oops"]
    assert answer.headers["x-request-id"]


def test_a_form_of_too_many_parts_is_refused() -> None:
    part = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    with pytest.raises(InvalidRequest):
        read_form(part * 2000 + b"--x--\r\n", "multipart/form-data; boundary=x")


async def test_the_model_in_the_path_chooses_the_workload(
    client: httpx2.AsyncClient, backend: ScriptedBackend
) -> None:
    answer = await client.get("/show/o/thing")
    assert (answer.content, answer.headers["content-type"]) == (
        b"\x00\xff",
        "application/octet-stream",
    )
    assert answer.headers["x-seen"] == "1"
    await client.get("/show/m/thing")
    assert [call.workload for call in backend.calls] == ["other", "measuring"]
    backend.cards = (*backend.cards, card("x", "neither"))
    wrong = await client.get("/show/x/thing")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (404, "model_not_found")
    assert "serves neither" in wrong.json()["error"]["message"]
    literal = await client.get("/show/{model}/{what}")
    assert literal.json()["error"]["code"] == "model_not_found"
    missing = await client.get("/show/nobody/thing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_compressed_bodies_are_refused_by_name(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/pictures", content=b"x", headers={"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["oops"]) == (
        422,
        "Compressed bodies are not taken; send it plain.",
    )


async def test_an_answer_on_a_path_with_parameters_has_one_identifier_and_counts_once(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get("/show/o/thing", headers={"x-request-id": "r-7"})
    assert answer.headers.get_list("x-request-id") == ["r-7"]
    counted = [
        line
        for line in (await client.get("/metrics")).text.splitlines()
        if line.startswith("headpond_http_responses_total") and "/show/" in line
    ]
    assert [line.rsplit(" ", 1)[1] for line in counted] == ["1.0"]
    assert (await client.post("/show/o/thing")).status_code == 405


async def test_the_server_wide_part_of_the_open_inference_protocol(
    client: httpx2.AsyncClient, backend: ScriptedBackend
) -> None:
    assert (await client.get("/v2")).json()["name"] == "headpond"
    assert (await client.get("/v2/health/live")).json() == {"live": True, "ready": True}
    assert (await client.get("/v2/health/ready")).status_code == 200
    backend.reasons = {"m": "no replica"}
    assert (await client.get("/v2/health/live")).status_code == 200
    waiting = await client.get("/v2/health/ready")
    assert (waiting.status_code, waiting.json()) == (503, {"live": True, "ready": False})


async def test_without_a_model_the_only_one_is_meant(
    client: httpx2.AsyncClient, backend: ScriptedBackend
) -> None:
    backend.cards = (card("m", "measuring"), card("x", "neither"))
    assert (await client.get("/info")).json() == ["m", ""]
    for more in (card("m2", "measuring"), card("o", "other")):
        backend.cards = (card("m", "measuring"), more)
        refused = await client.get("/info")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")


async def test_the_query_may_name_the_model(
    client: httpx2.AsyncClient, backend: ScriptedBackend
) -> None:
    assert (await client.get("/info?model=o2")).status_code == 200
    assert (await client.get("/info", params={"model": "m"})).status_code == 200
    assert [(call.model, call.workload) for call in backend.calls] == [
        ("o2", "other"),
        ("m", "measuring"),
    ]
    assert (await client.get("/info?model=nobody")).status_code == 404
    assert (await client.get("/show/o/thing?model=m")).status_code == 200
    assert backend.calls[-1].model == "o"


async def test_what_no_route_answers_has_the_errors_of_its_dialect(
    client: httpx2.AsyncClient,
) -> None:
    for method, path, message in (
        ("GET", "/pictures", "use POST"),
        ("GET", "/paintings", "nothing"),
        ("POST", "/gallery/a/b", "nothing"),
    ):
        answer = await client.request(method, path)
        assert message in answer.json()["oops"]
    assert (await client.get("/pictures")).headers["allow"] == "POST"
    for path in ("/paintings/a", "/gallery", "/show"):
        assert (await client.get(path)).json()["error"]["code"] == "not_found"
    assert (await client.post("/show/o/a")).json()["error"]["code"] == "method_not_allowed"


async def test_what_can_be_shared_and_what_not(backend: ScriptedBackend) -> None:
    first, second = records()
    with pytest.raises(DeclarationError, match="POST /pictures is declared 2 times"):
        build_app([first, replace(second, routes=(PICTURES,))], backend, Settings())
    health = replace(INFO, path="/healthz")
    with pytest.raises(DeclarationError, match="GET /healthz is declared 2 times"):
        build_app([replace(first, routes=(health,))], backend, Settings())


async def test_the_document_describes_them(client: httpx2.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    content = paths["/pictures"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "multipart/form-data"}
    responses = paths["/pictures"]["post"]["responses"]
    assert set(responses) == {"200", "422"}
    schema = responses["422"]["content"]["application/json"]["schema"]
    assert schema["properties"] == {"oops": {"type": "string"}}
    named = [each["name"] for each in paths["/info"]["get"]["parameters"] if each["in"] == "query"]
    assert named == ["model"]
    shown = paths["/show/{model}/{what}"]["get"]
    assert "requestBody" not in shown
    assert [each["name"] for each in shown["parameters"] if each["in"] == "path"] == [
        "model",
        "what",
    ]


def test_incoming_has_no_body_by_default() -> None:
    assert Incoming() == Incoming(body=b"", content_type="", path={}, headers={})


async def test_what_was_meant_for_a_replica_is_served_by_the_router(
    backend: ScriptedBackend,
) -> None:
    app = with_strays(build_app(records(), backend, Settings()), {"m", "o"}.__contains__)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        named = await client.post("/models/m/pictures", json={"picture": "a", "model": "m"})
        unnamed = await client.get("/models/o/info")
        shown = await client.get("/models/o/show/o/thing")
        unknown = await client.get("/models/nobody/info")
        bare = await client.get("/models/o")
    assert named.json()[0] == "m"
    assert shown.status_code == 200
    asked = [(call.model, call.workload) for call in backend.calls]
    assert asked == [("m", "measuring"), ("o", "other"), ("o", "other")]
    assert unnamed.status_code == 200
    assert (unknown.status_code, bare.status_code) == (404, 404)
