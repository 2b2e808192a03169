"""Error answers to the letter, and how little a bad body can make of them."""

from __future__ import annotations

import json
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, ValidationError

from headpond.errors import HeadpondError, ModelNotFound, Overloaded, PayloadTooLarge
from headpond.http.app import ASGIApp
from headpond.http.errors import envelope, error_headers, invalid_request
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend

MODEL = "org/toy-small"


async def post(app: ASGIApp, *parts: bytes, headers: dict[str, str] | None = None) -> AsgiRequest:
    return await AsgiRequest(path="/v1/toy", parts=parts, headers=headers or {}).run(app)


async def problem(app: ASGIApp, body: object) -> dict[str, str | None]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = await post(app, raw)
    assert request.status == 400
    assert request.answer_headers["content-type"] == "application/json"
    (error,) = json.loads(request.body).values()
    assert list(error) == ["message", "type", "param", "code"]
    assert (error["type"], error["code"]) == ("invalid_request_error", None)
    details: dict[str, str | None] = error
    return details


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"text": "x"}, "model"),
        ({"model": MODEL}, "text"),
        ({"model": MODEL, "text": 3}, "text"),
        ({"model": MODEL, "text": "x", "stream": "maybe"}, "stream"),
        (
            {"model": MODEL, "text": "x", "parts": [{"weight": 1}, {"weight": "a"}]},
            "parts.1.weight",
        ),
        ({"model": MODEL, "text": "x", "parts": [{"kind": "a"}]}, "parts.0.weight"),
        # pydantic's own names for the branches of a union are no fields
        ({"model": MODEL, "text": "x", "parts": [{"weight": 1, "kind": 5}]}, "parts.0.kind"),
        ({"model": MODEL, "text": "x", "parts": [{"weight": 1, "kind": [5]}]}, "parts.0.kind"),
        ({"model": MODEL, "text": "forbidden"}, "text"),
    ],
)
async def test_a_wrong_field_is_named_as_the_caller_wrote_it(
    app: ASGIApp, body: object, param: str
) -> None:
    assert (await problem(app, body))["param"] == param


@pytest.mark.parametrize(
    "body",
    [b"{", b"not json", b"\xff\xfe", b"", b'{"model": "a"} x', b"[" * 1500, b'"\\ud800"'],
)
async def test_a_body_that_is_not_json_is_a_400_without_a_field(app: ASGIApp, body: bytes) -> None:
    assert (await problem(app, body))["param"] is None


@pytest.mark.parametrize("body", [b"[]", b"null", b"3", b'"text"'])
async def test_json_that_is_no_object_is_a_400(app: ASGIApp, body: bytes) -> None:
    assert "object" in str((await problem(app, body))["message"])


async def test_validation_fails_before_any_event_of_a_stream(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    await problem(app, {"model": MODEL, "text": 3, "stream": True})
    assert backend.calls == []


async def test_the_callers_values_are_not_repeated(app: ASGIApp) -> None:
    error = await problem(app, {"model": MODEL, "text": ["my secret"]})
    assert "secret" not in json.dumps(error)


async def test_an_answer_does_not_grow_with_the_number_of_problems(app: ASGIApp) -> None:
    few = await post(app, json.dumps({"model": MODEL, "text": "x", "parts": [0] * 11}).encode())
    many = await post(app, json.dumps({"model": MODEL, "text": "x", "parts": [0] * 600}).encode())
    assert many.status == 400
    assert json.loads(few.body)["error"]["message"].endswith("and 1 more")
    assert json.loads(many.body)["error"]["message"].endswith("and 590 more")
    assert len(many.body) <= len(few.body) + 3


async def test_a_long_name_in_the_body_is_cut(app: ASGIApp) -> None:
    body = json.dumps({"model": MODEL, "text": "x", "parts": {"k" * 1500: 1}}).encode()
    assert len((await post(app, body)).body) < 600


async def test_content_type_does_not_matter_when_the_body_parses(app: ASGIApp) -> None:
    body = json.dumps({"model": "unknown", "text": "x"}).encode()
    for given in ("text/plain", "application/x-www-form-urlencoded", "nonsense"):
        assert (await post(app, body, headers={"content-type": given})).status == 404


async def test_a_urlencoded_form_is_called_so(app: ASGIApp) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    for body, message in ((b"model=a&text=x", "a urlencoded form"), (b'{"model": ', "valid JSON")):
        request = await post(app, body, headers=headers)
        assert request.status == 400
        assert message in json.loads(request.body)["error"]["message"]


async def test_an_unknown_model_is_a_404_about_the_model(app: ASGIApp) -> None:
    request = await post(app, json.dumps({"model": "unknown", "text": "x"}).encode())
    assert request.status == 404
    assert json.loads(request.body) == {
        "error": {
            "message": "The model does not exist.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert request.answer_headers["x-should-retry"] == "false"


async def test_a_body_is_refused_by_its_declared_length(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    for declared in ("2001", "9" * 400):
        request = await post(app, b"{}", headers={"content-length": declared})
        assert request.status == 413
        error = json.loads(request.body)["error"]
        assert error["code"] == PayloadTooLarge.code
        assert "2000 bytes" in error["message"]
    assert backend.calls == []


async def test_a_body_of_unknown_length_is_refused_when_it_passes_the_bound(app: ASGIApp) -> None:
    request = AsgiRequest(path="/v1/toy", parts=[b" " * 1000] * 5, ends=False)
    assert (await request.run(app)).status == 413


async def test_a_body_may_come_in_parts_up_to_the_bound(app: ASGIApp) -> None:
    body = json.dumps({"model": "unknown", "text": "x"}).encode().ljust(2000)
    parts = [body[at : at + 700] for at in range(0, len(body), 700)]
    assert (await post(app, *parts)).status == 404


def test_waits_are_whole_seconds_of_at_least_one_and_exact_milliseconds() -> None:
    def waits(error: HeadpondError) -> tuple[bytes, bytes]:
        headers = dict(error_headers(error))
        return headers[b"retry-after"], headers[b"retry-after-ms"]

    assert waits(Overloaded()) == (b"1", b"1000")
    assert waits(Overloaded(retry_after_s=0.0)) == (b"1", b"1")
    assert waits(Overloaded(retry_after_s=1.0001)) == (b"2", b"1001")
    assert waits(Overloaded(retry_after_s=float("inf"))) == (b"3600", b"3600000")
    assert b"retry-after" not in dict(error_headers(ModelNotFound()))


def test_a_backends_own_field_is_kept() -> None:
    assert envelope(ModelNotFound(param="deployment"))["error"]["param"] == "deployment"


class Told(BaseModel):
    """Fields of the kinds that pydantic has Python's words for."""

    many: tuple[int, ...] = ()
    listed: list[int] = []
    named: dict[str, int] = {}
    few: Annotated[tuple[int, ...], Field(max_length=1)] = ()
    inner: Told | None = None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"many": 0}', "many: Input should be an array"),
        ('{"listed": 0}', "listed: Input should be an array"),
        ('{"named": 0}', "named: Input should be an object"),
        ('{"inner": 0}', "inner: Input should be an object"),
        ("[]", "Input should be an object"),
        ('{"few": [1, 2]}', "few: Array should have at most 1 item after validation, not 2"),
    ],
)
def test_what_is_wrong_is_said_in_words_of_json(body: str, expected: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        Told.model_validate_json(body)
    assert invalid_request(refusal.value, body.encode()).message == expected
