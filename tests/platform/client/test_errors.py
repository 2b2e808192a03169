"""Errors as clients meet them."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import httpx2
import pytest

from headpond import errors
from headpond.client.errors import ResponseInvalid
from headpond.http.errors import MethodNotAllowed, error_headers, error_json
from headpond.jobs.errors import LeaseLost
from headpond.testing.http_script import ScriptedBody, ScriptedServer, sse_response

Whole = Callable[..., str | None]
Texts = Callable[..., list[str | None]]
Answer = Callable[..., httpx2.Response]
Chunk = Callable[[str], str]

SERVERS = {"headpond.errors", "headpond.http.errors", "headpond.jobs.errors"}


def server_errors() -> list[errors.HeadpondError]:
    """Return one of each error that the HTTP layer may send."""
    found: list[type[errors.HeadpondError]] = [errors.HeadpondError]
    for cls in found:
        found += [sub for sub in cls.__subclasses__() if sub.__module__ in SERVERS]
    internal = {errors.DeclarationError, errors.BundleError, MethodNotAllowed, LeaseLost}
    return [cls("told", param="a.b", retry_after_s=2) for cls in found if cls not in internal]


every_error = pytest.mark.parametrize("sent", server_errors(), ids=lambda e: type(e).__name__)


@every_error
def test_come_back_as_the_servers_class(whole: Whole, sent: errors.HeadpondError) -> None:
    headers = [*error_headers(sent), (b"x-request-id", b"r-1")]
    reply = httpx2.Response(sent.status, content=error_json(sent), headers=headers)
    with pytest.raises(errors.HeadpondError) as got:
        whole(ScriptedServer(reply), max_retries=0)
    error = got.value
    assert type(error) is type(sent)
    assert (error.message, error.param, error.retry_after_s) == ("told", "a.b", 2.0)
    assert str(error) == "a.b: told"
    assert error.received == errors.Received(
        status=sent.status,
        request_id="r-1",
        body=error_json(sent),
        should_retry=sent.retryable,
    )
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(again), again.received) == (type(error), error.received)


@every_error
def test_amid_a_stream(texts: Texts, chunk: Chunk, sent: errors.HeadpondError) -> None:
    event = f"data: {error_json(sent)}\n\n"
    body = ScriptedBody(chunk("a"), event, chunk("never seen"), "data: [DONE]\n\n")
    with pytest.raises(errors.HeadpondError, match="told") as got:
        texts(ScriptedServer(sse_response(body, x_request_id="r-7")))
    assert type(got.value) is type(sent)
    assert got.value.received is not None
    assert got.value.received.request_id == "r-7"
    assert body.closed


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (400, errors.InvalidRequest),
        (404, errors.NotFound),
        (422, errors.InvalidRequest),
        (429, errors.RateLimited),
        (502, errors.WorkerLost),
        (504, errors.HeadpondError),
    ],
)
def test_of_some_proxy(whole: Whole, status: int, cls: type[errors.HeadpondError]) -> None:
    page = "<html>secret</html>"
    with pytest.raises(cls) as got:
        whole(ScriptedServer(httpx2.Response(status, text=page)), max_retries=0)
    assert type(got.value) is cls
    assert got.value.message == f"The server answered with HTTP status {status}."
    assert got.value.received is not None
    assert got.value.received.body == page


def test_an_answer_of_another_kind(whole: Whole) -> None:
    server = ScriptedServer(httpx2.Response(200, json={"secret": 1}))
    with pytest.raises(ResponseInvalid, match="no ChatCompletion") as got:
        whole(server)
    assert got.value.__cause__ is None
    assert got.value.__context__ is None


def test_a_stream_of_another_kind(texts: Texts, answer: Answer) -> None:
    with pytest.raises(ResponseInvalid):
        texts(ScriptedServer(answer()))
    with pytest.raises(ResponseInvalid):
        texts(ScriptedServer(sse_response(ScriptedBody("data: {}\n\n", "data: [DONE]\n\n"))))
