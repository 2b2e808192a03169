"""One route of one workload: from a request's body to the last byte of its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

import structlog
from starlette.types import Receive, Scope, Send

from headpond.admission.too_many import TooMany
from headpond.call import Backend, Call, Claim
from headpond.dialect import Ask, Exchange, Heading, Incoming, Route
from headpond.errors import DeadlineExceeded, HeadpondError, RequestCancelled
from headpond.http.auth import Caller
from headpond.http.body import read_body
from headpond.http.exchange import read_exchange
from headpond.http.headers import Asked, Headers
from headpond.http.metrics import HttpMetrics
from headpond.http.reply import CallerGone, Reply
from headpond.http.requests import Request, Requests
from headpond.http.stray import SERVED, path_params
from headpond.http.target import target_model
from headpond.http.tenancy import Tenancy
from headpond.http.turn import Turn
from headpond.http.watch import Watch
from headpond.record import WorkloadRecord
from headpond.repeats import PASSAGE
from headpond.telemetry.tracing import RequestTracer
from headpond.tenancy.allowance import Allowance
from headpond.tenancy.metering import submit

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long an app waits.

    Attributes:
        keep_alive_s: A stream that is idle for so long gets a comment.
        grace_s: The backend keeps deadlines; so long after one, waiting for it ends.
    """

    keep_alive_s: float = 15.0
    grace_s: float = 1.0


class Endpoint:
    """Answers one route; itself an ASGI application, without middleware around it."""

    def __init__(
        self,
        route: Route,
        record: WorkloadRecord,
        backend: Backend,
        tenancy: Tenancy,
        metrics: HttpMetrics,
        *,
        patience: Patience,
        tracer: RequestTracer | None = None,
    ) -> None:
        """Keep what every request on the route needs.

        Args:
            route: The declared route.
            record: Its workload.
            backend: What answers the calls.
            tenancy: Who may call, and how much.
            metrics: Where answers are counted.
            patience: How long it waits.
            tracer: Makes the spans of requests; None for no spans.
        """
        self._route = route
        self._record = record
        self._backend = backend
        self._tenancy = tenancy
        self._metrics = metrics
        self._patience = patience
        self._phases = tuple(phase.name for phase in record.phases)
        self._requests = Requests(
            method=route.method,
            route=route.path,
            workload=record.name,
            metrics=metrics,
            tracer=tracer,
        )

    @property
    def workload(self) -> str:
        """The name of the workload."""
        return self._record.name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever becomes of it."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request = self._requests.begin(headers)
        reply = Reply(send, request.identifier, self._route.fail)
        path = path_params(scope)
        error: HeadpondError | None = RequestCancelled()
        try:
            error = await self._serve(headers, path, receive, reply, request)
        except HeadpondError as raised:
            error = raised
            if isinstance(raised, TooMany) and (passage := scope.get(PASSAGE)) is not None:
                passage.refuse_alike(raised.for_s)
            await reply.fail(raised)
        except CallerGone:
            pass
        except Exception:
            error = HeadpondError()
            log.exception(
                "request_fault", request_id=request.identifier, workload=self._record.name
            )
            await reply.fail(error)
        finally:
            self._metrics.count(self._route.path, reply.status)
            request.end(reply.status, error, admitted=reply.accepted is not None)

    async def refuse(self, scope: Scope, send: Send, error: HeadpondError) -> None:
        """Answer one request with an error in the route's own form, if the caller has a key."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request = self._requests.begin(headers)
        reply = Reply(send, request.identifier, self._route.fail)
        try:
            caller = self._tenancy.keyring.authenticate(headers, self._route.path)
            request.tenant = caller.tenant
        except HeadpondError as refusal:
            error = refusal
        await reply.fail(error)
        self._metrics.count(self._route.path, reply.status)
        request.end(reply.status, error, admitted=False)

    async def _serve(
        self,
        headers: Headers,
        path: Mapping[str, str],
        receive: Receive,
        reply: Reply,
        request: Request,
    ) -> HeadpondError | None:
        """Serve a request; return the first error of an item that the answer has a place for."""
        began_s = request.began_s
        caller = self._tenancy.keyring.authenticate(headers, self._route.path)
        request.tenant = caller.tenant
        caller.require_workload(self._record.name)
        allowance = self._tenancy.quotas.allowance(caller.tenant, self._record.name)
        reply.allowance = allowance
        asked = Asked.read(headers, self._record.overload.deadline_s)
        await allowance.look()
        limit = asyncio.timeout(asked.limit_s + self._patience.grace_s)
        try:
            async with limit:
                self._backend.check_turn(
                    Claim(
                        workload=self._record.name,
                        tenant=caller.tenant,
                        priority=asked.priority,
                        deadline_s=asked.limit_s,
                    )
                )
                body = await self._body(headers, receive)
                exchange, ask = read_exchange(self._route, _incoming(body, headers, path))
                left_s = asked.limit_s - (perf_counter() - began_s)
                model = target_model(
                    ask, caller, path.get(SERVED), self._backend, self._record.name
                )
                call = self._call(ask, caller, model, asked, request, left_s)
                due_s = began_s + asked.limit_s
                return await self._answer(call, allowance, exchange, receive, reply, began_s, due_s)
        except TimeoutError:
            if limit.expired():
                raise DeadlineExceeded from None
            raise

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        if self._route.method == "GET":
            return b""
        return await read_body(receive, headers, self._record.request.max_body_bytes)

    def _call(
        self,
        ask: Ask,
        caller: Caller,
        model: str,
        asked: Asked,
        request: Request,
        left_s: float,
    ) -> Call:
        if left_s <= 0:
            raise DeadlineExceeded
        return Call(
            request_id=request.identifier,
            tenant=caller.tenant,
            workload=self._record.name,
            model=model,
            items=ask.items,
            priority=asked.priority,
            deadline_s=left_s,
            stream=ask.stream,
            trace=request.trace,
            store=ask.store,
            session=asked.session,
        )

    async def _answer(
        self,
        call: Call,
        allowance: Allowance,
        exchange: Exchange,
        receive: Receive,
        reply: Reply,
        began_s: float,
        due_s: float,
    ) -> HeadpondError | None:
        submitted_s = perf_counter()
        async with Watch(receive) as watch:
            answer = await submit(call, allowance, self._backend)
            watch.hold(answer)
            accepted = reply.accepted = answer.accepted
            turn = Turn(
                answer=answer,
                exchange=exchange,
                heading=Heading(
                    request_id=call.request_id,
                    created_s=int(time.time()),
                    model=accepted.model,
                    fingerprint=accepted.bundle,
                ),
                reply=reply,
                watch=watch,
                workload=call.workload,
                phases=self._phases,
                metrics=self._metrics,
                began_s=began_s,
                submitted_s=submitted_s,
                due_s=due_s,
            )
            return await (turn.stream(self._patience.keep_alive_s) if call.stream else turn.whole())


def _incoming(body: bytes, headers: Headers, path: Mapping[str, str]) -> Incoming:
    content_type = headers.get(b"content-type", b"").decode("latin-1")
    return Incoming(body=body, content_type=content_type, path=path, headers=headers)
