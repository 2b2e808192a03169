"""When the client tries again, how long it waits, and when it stops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2
import pytest

from headpond.client.attempts import Attempts
from headpond.client.config import ClientConfig
from headpond.client.errors import ConnectionFailed, ConnectionTimedOut, StreamTruncated, error_of
from headpond.errors import DeadlineExceeded, HeadpondError, Overloaded
from headpond.http.errors import error_json
from headpond.testing.http_script import ScriptedBody, ScriptedServer, sse_response

Whole = Callable[..., str | None]
Texts = Callable[..., list[str | None]]
Answer = Callable[..., httpx2.Response]
Chunk = Callable[[str], str]


@pytest.mark.usefixtures("no_waiting")
class TestRetries:
    @pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
    def test_twice_on_what_may_pass(self, whole: Whole, answer: Answer, status: int) -> None:
        server = ScriptedServer(answer(status), answer(status), answer())
        assert whole(server) == "hey"
        assert len(server.requests) == 3
        assert len({request.content for request in server.requests}) == 1

    def test_the_last_error_is_raised(self, whole: Whole, answer: Answer) -> None:
        server = ScriptedServer(*[answer(503, x_request_id=f"r-{i}") for i in range(3)])
        with pytest.raises(Overloaded) as refusal:
            whole(server)
        assert refusal.value.received is not None
        assert refusal.value.received.request_id == "r-2"

    @pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
    def test_never_on_what_stays(self, whole: Whole, answer: Answer, status: int) -> None:
        server = ScriptedServer(answer(status))
        with pytest.raises(HeadpondError):
            whole(server)
        assert len(server.requests) == 1

    def test_the_server_has_the_say(self, whole: Whole, answer: Answer) -> None:
        with pytest.raises(Overloaded):
            whole(ScriptedServer(answer(503, x_should_retry="false")))
        assert whole(ScriptedServer(answer(400, x_should_retry="true"), answer())) == "hey"

    @pytest.mark.parametrize(
        "broken", [httpx2.ConnectError("x"), httpx2.ReadError("x"), httpx2.RemoteProtocolError("x")]
    )
    def test_connections_that_break_before_an_answer(
        self, whole: Whole, answer: Answer, broken: Exception
    ) -> None:
        assert whole(ScriptedServer(broken, broken, answer())) == "hey"
        server = ScriptedServer(broken, broken, broken)
        with pytest.raises(ConnectionFailed):
            whole(server)
        assert len(server.requests) == 3

    def test_silence(self, whole: Whole) -> None:
        server = ScriptedServer(httpx2.ReadTimeout("x"), httpx2.ConnectTimeout("x"))
        with pytest.raises(ConnectionTimedOut):
            whole(server, max_retries=1)
        assert len(server.requests) == 2

    def test_as_often_as_told(self, whole: Whole, answer: Answer) -> None:
        server = ScriptedServer(answer(500))
        with pytest.raises(HeadpondError):
            whole(server, max_retries=0)
        assert len(server.requests) == 1

    def test_a_stream_until_it_is_accepted(
        self, texts: Texts, answer: Answer, chunk: Chunk
    ) -> None:
        accepted = sse_response(ScriptedBody(chunk("a"), "data: [DONE]\n\n"))
        assert texts(ScriptedServer(answer(503), httpx2.ConnectError("x"), accepted)) == ["a"]

    def test_a_stream_never_again_after_its_first_event(self, texts: Texts, chunk: Chunk) -> None:
        server = ScriptedServer(sse_response(ScriptedBody(chunk("a"), httpx2.ReadError("cut"))))
        with pytest.raises(StreamTruncated):
            texts(server)
        assert len(server.requests) == 1


class TestWaits:
    def test_the_servers_wait_is_kept(
        self, whole: Whole, answer: Answer, waits: list[float]
    ) -> None:
        server = ScriptedServer(answer(429, retry_after_ms="20", retry_after="9"), answer())
        assert whole(server) == "hey"
        assert waits == [0.02]

    @pytest.mark.parametrize(
        ("headers", "wait_s"),
        [
            ({"retry_after": "3"}, 3.0),
            ({"retry_after": "0.25"}, 0.25),
            ({"retry_after_ms": "1500"}, 1.5),
            ({"retry_after_ms": "nan", "retry_after": "4"}, 4.0),
            ({"retry_after": "121"}, False),
            ({"retry_after": "Fri, 01 Jan 1999 00:00:00 GMT"}, 0.0),
        ],
    )
    def test_how_it_is_told(self, answer: Answer, headers: dict[str, str], wait_s: float) -> None:
        waited_s = Attempts(ClientConfig()).wait_s(error_of(answer(503, **headers)))
        assert (waited_s, type(waited_s)) == (wait_s, type(wait_s))

    def test_dates_count_from_now(self, answer: Answer) -> None:
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
        wait_s = Attempts(ClientConfig()).wait_s(error_of(answer(503, retry_after=date)))
        assert 0 < wait_s <= 60

    def test_without_a_word_waits_grow_to_a_bound(self, answer: Answer) -> None:
        attempts = Attempts(ClientConfig())
        waits_s = [attempts.wait_s(error_of(answer(500))) for _ in range(2000)]
        assert 0.375 <= waits_s[0] <= 0.5
        assert 0.75 <= waits_s[1] <= 1.0
        assert 6.0 <= waits_s[-1] <= 8.0


class TestDeadlines:
    def test_the_server_hears_what_is_left(self, whole: Whole, answer: Answer) -> None:
        server = ScriptedServer(answer(503, retry_after_ms="30"), answer())
        assert whole(server, deadline_s=60) == "hey"
        first, second = (int(r.headers["x-headpond-deadline-ms"]) for r in server.requests)
        assert first <= 60_000
        assert 0 < second <= first - 25

    def test_no_wait_goes_beyond_it(self, whole: Whole, answer: Answer, waits: list[float]) -> None:
        with pytest.raises(Overloaded):
            whole(ScriptedServer(answer(503, retry_after="2")), deadline_s=1)
        assert waits == []

    def test_silence_until_then_is_a_missed_deadline(self, whole: Whole) -> None:
        def silent(request: httpx2.Request) -> httpx2.Response:
            threading.Event().wait(0.03)
            raise httpx2.ReadTimeout("x", request=request)

        with pytest.raises(DeadlineExceeded):
            whole(silent, deadline_s=0.02)

    def test_an_attempt_waits_little_longer_than_the_deadline(self) -> None:
        now = 100.0
        attempts = Attempts(ClientConfig(deadline_s=3.0), clock=lambda: now)
        assert attempts.headers() == {"x-headpond-deadline-ms": "3000"}
        assert attempts.timeout().read == pytest.approx(4.0)
        now = 103.0
        with pytest.raises(DeadlineExceeded):
            attempts.headers()

    def test_the_servers_own_408_is_not_repeated(self, whole: Whole) -> None:
        server = ScriptedServer(httpx2.Response(408, content=error_json(DeadlineExceeded())))
        with pytest.raises(DeadlineExceeded):
            whole(server)
        assert len(server.requests) == 1
