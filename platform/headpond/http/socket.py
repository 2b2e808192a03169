"""One WebSocket route: from a handshake to the close of the connection."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from functools import partial
from itertools import count

import structlog
from starlette.types import Message, Receive, Scope, Send

from headpond.call import Answer, Backend, Call
from headpond.conversation import Handshake
from headpond.dialect import Ask, Heading, Route
from headpond.errors import (
    DeadlineExceeded,
    DeclarationError,
    HeadpondError,
    NotReady,
    Overloaded,
    RequestCancelled,
)
from headpond.http.auth import Caller
from headpond.http.handshake import Visit, refuse
from headpond.http.headers import Asked
from headpond.http.keepalive import spare_unheard
from headpond.http.line import TOO_BIG, Line
from headpond.http.metrics import HttpMetrics
from headpond.http.replay import wire_bytes
from headpond.http.reply import GONE
from headpond.http.requests import SWITCHED, CountedAnswer, Request, Requests
from headpond.http.session import Session
from headpond.http.sessions import Sessions
from headpond.http.stray import SERVED
from headpond.http.target import check_model, target_model
from headpond.http.tenancy import Tenancy
from headpond.record import WorkloadRecord
from headpond.telemetry.tracing import RequestTracer
from headpond.tenancy.errors import QuotasUnavailable
from headpond.tenancy.metering import submit
from headpond.tenancy.quotas import Quotas

log = structlog.get_logger(__name__)

_UNREAD_BYTES = 2**19

_TRIES, _TRY_S = 20, 0.05
"""How often, and how far apart, a place is tried for that was given up: it is free soon."""


class SocketEndpoint:
    """Serves one route; itself an ASGI application for WebSocket scopes."""

    def __init__(
        self,
        route: Route,
        record: WorkloadRecord,
        backend: Backend,
        tenancy: Tenancy,
        metrics: HttpMetrics,
        sessions: Sessions,
        tracer: RequestTracer | None = None,
    ) -> None:
        """Keep what every connection on the route needs.

        Args:
            route: The declared route.
            record: Its workload.
            backend: What answers the calls.
            tenancy: Who may call, and how much.
            metrics: Where handshakes are counted.
            sessions: Where sessions are kept.
            tracer: Makes the spans that calls are below; None for no spans.

        Raises:
            DeclarationError: The route is none of a WebSocket.
        """
        if route.conversation is None:
            raise DeclarationError(f"{route.path} has no conversation")
        self._converses = route.conversation
        self._route = route
        self._record = record
        self._backend = backend
        self._tenancy = tenancy
        self._metrics = metrics
        self._sessions = sessions
        self._requests = Requests(
            method="GET",
            route=route.path,
            workload=record.name,
            metrics=metrics,
            tracer=tracer,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, whatever becomes of it."""
        if (await receive())["type"] != "websocket.connect":
            return
        status = GONE
        line = Line(send, _UNREAD_BYTES)
        allowance = None
        try:
            visit = Visit.read(scope)
            caller = self._tenancy.keyring.authenticate(visit.headers, self._route.path)
            caller.require_workload(self._record.name)
            allowance = self._tenancy.quotas.allowance(caller.tenant, self._record.name)
            if "session" not in visit.query:  # one that goes on has its call already
                await allowance.look()
            session = self._enter(visit, caller, line)
        except HeadpondError as error:
            with suppress(OSError):
                status = await refuse(scope, send, error, self._route.fail, allowance)
        except Exception:
            log.exception("handshake_fault", path=self._route.path)
            with suppress(OSError):
                status = await refuse(scope, send, HeadpondError(), self._route.fail)
        else:
            code = None
            try:
                await visit.accept(send, allowance.headers())
                status = SWITCHED
                code = await self._talk(session, line, spare_unheard(receive))
            except OSError:
                pass  # the client went away amid the handshake
            finally:
                self._sessions.leave(session, line, code)
        finally:
            self._metrics.count(self._route.path, status)

    def _enter(self, visit: Visit, caller: Caller, line: Line) -> Session:
        """Begin a session, or go on with the one that is asked for.

        Raises:
            HeadpondError: The handshake is refused.
        """
        owner = (caller.tenant, self._route.path)
        resumed = visit.query.get("session")
        if resumed is not None:
            session = self._sessions.find(resumed, owner)
            self._sessions.resume(session, line, visit.last_event())
            return session
        asked = Asked.read(visit.headers, self._sessions.limits.longest_s)
        self._sessions.make_room(caller.tenant)
        identifier = f"sess_{os.urandom(16).hex()}"
        handshake = Handshake(
            session_id=identifier,
            path=visit.path,
            query=visit.query,
            headers=visit.headers,
            resume_s=self._sessions.limits.resume_s,
            check_model=partial(
                check_model, caller=caller, backend=self._backend, workload=self._record.name
            ),
        )
        session = Session(
            identifier,
            owner,
            self._converses(handshake),
            self._calls(caller, visit, asked),
            self._sessions.gone,
        )
        self._sessions.add(session, asked.limit_s)
        session.begin(line)
        return session

    def _calls(self, caller: Caller, visit: Visit, asked: Asked) -> _Calls:
        return _Calls(
            self._requests,
            self._backend,
            self._tenancy.quotas,
            self._sessions,
            caller,
            visit,
            asked,
        )

    async def _talk(self, session: Session, line: Line, receive: Receive) -> int | None:
        """Carry messages both ways until one side ends it; return the client's close code."""
        pouring = asyncio.create_task(line.pour())
        hearing = asyncio.create_task(self._hear(session, line, receive))
        try:
            await asyncio.wait({pouring, hearing}, return_when=asyncio.FIRST_COMPLETED)
            if line.closing:
                await asyncio.wait({pouring})
        finally:
            pouring.cancel()
            hearing.cancel()
            _, code = await asyncio.gather(pouring, hearing, return_exceptions=True)
        return code if isinstance(code, int) else None

    async def _hear(self, session: Session, line: Line, receive: Receive) -> int | None:
        """Hand over message after message; return the client's close code.

        While a message is being taken in, none is read but the next one: so a client that
        sends too fast is held up by its own connection, and one that goes away is noticed.
        """
        ahead: asyncio.Task[Message] | None = None
        try:
            while True:
                message = await receive() if ahead is None else await ahead
                ahead = None
                if message["type"] == "websocket.disconnect":
                    code: int | None = message.get("code")
                    return code
                heard = _heard(message)
                if _size(heard) > self._sessions.limits.message_bytes:
                    line.cut(TOO_BIG, "the message is too long")
                if line.closing or not session.is_on(line):
                    return None
                session.hear(heard)
                await asyncio.sleep(0)
                if session.busy:
                    ahead = asyncio.ensure_future(receive())
                    await _rested(session, ahead)
        finally:
            if ahead is not None:
                ahead.cancel()


class _Calls:
    """Admits the calls of one session."""

    def __init__(
        self,
        requests: Requests,
        backend: Backend,
        quotas: Quotas,
        sessions: Sessions,
        caller: Caller,
        visit: Visit,
        asked: Asked,
    ) -> None:
        self._requests = requests
        self._backend = backend
        self._quotas = quotas
        self._sessions = sessions
        self._caller = caller
        self._visit = visit
        self._asked = asked
        self._until_s = time.monotonic() + asked.limit_s
        self._numbers = count(1)

    async def __call__(self, ask: Ask) -> tuple[Answer, Heading]:
        number = next(self._numbers)
        identifier = self._visit.request_id
        if number > 1:
            identifier = f"{identifier}/{number}"
        request = self._requests.begin(self._visit.headers, identifier)
        request.tenant = self._caller.tenant
        try:
            answer = await self._submit(self._call(ask, request))
        except HeadpondError as error:
            request.end(SWITCHED, error, admitted=False)
            raise
        except asyncio.CancelledError:
            request.end(SWITCHED, RequestCancelled(), admitted=False)
            raise
        heading = Heading(
            request_id=request.identifier,
            created_s=int(time.time()),
            model=answer.accepted.model,
            fingerprint=answer.accepted.bundle,
        )
        return CountedAnswer(answer, request), heading

    def _call(self, ask: Ask, request: Request) -> Call:
        served = self._visit.path.get(SERVED)
        workload = self._requests.workload
        model = target_model(ask, self._caller, served, self._backend, workload)
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded
        return Call(
            request_id=request.identifier,
            tenant=self._caller.tenant,
            workload=workload,
            model=model,
            items=ask.items,
            priority=self._asked.priority,
            deadline_s=left_s,
            stream=True,
            trace=request.trace,
            store=ask.store,
            session=self._asked.session or self._visit.request_id,
        )

    async def _submit(self, call: Call) -> Answer:
        """Submit a call; where there is no place for it, a client that is away gives up its own.

        Raises:
            HeadpondError: It is refused.
        """
        tries = 0
        while True:
            try:
                allowance = self._quotas.allowance(call.tenant, call.workload)
                return await submit(call, allowance, self._backend)
            except (NotReady, QuotasUnavailable):
                raise
            except Overloaded:
                made_way = tries > 0 or self._sessions.give_way(call.model)
                if not made_way or tries == _TRIES:
                    raise
            tries += 1
            await asyncio.sleep(_TRY_S)


async def _rested(session: Session, ahead: asyncio.Task[Message]) -> None:
    """Wait until a session can hear the next message, or its client is gone."""
    resting = asyncio.create_task(session.rest())
    try:
        await asyncio.wait({resting, ahead}, return_when=asyncio.FIRST_COMPLETED)
        if not (ahead.done() and ahead.result()["type"] == "websocket.disconnect"):
            await resting
    finally:
        resting.cancel()


def _heard(message: Message) -> str | bytes:
    text: str | None = message.get("text")
    if text is not None:
        return text
    content: bytes = message.get("bytes") or b""
    return content


def _size(heard: str | bytes) -> int:
    return len(heard) if isinstance(heard, bytes) else wire_bytes(heard)
