"""The ASGI app: every route of the records, and the platform's own, over one backend."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headpond.call import Backend
from headpond.errors import DeclarationError, HeadpondError, NotFound
from headpond.http.auth import Keyring
from headpond.http.endpoint import Endpoint, Patience
from headpond.http.errors import MethodNotAllowed, UpgradeRequired
from headpond.http.forms import ErrorForms
from headpond.http.handshake import refuse
from headpond.http.headers import request_id
from headpond.http.metrics import UNMATCHED, HttpMetrics
from headpond.http.models import Models
from headpond.http.no_jobs import no_jobs
from headpond.http.no_usage import no_usage
from headpond.http.openapi import OPENAPI_PATH, document
from headpond.http.origin import OriginGate
from headpond.http.probes import Probes
from headpond.http.reply import GONE, CallerGone, Reply
from headpond.http.sessions import Sessions
from headpond.http.shared import SharedEndpoint, can_be_shared
from headpond.http.socket import SocketEndpoint
from headpond.http.target import local_path
from headpond.http.tenancy import Tenancy
from headpond.http.workloads import Workloads
from headpond.playground.pages import Playground
from headpond.record import WorkloadRecord
from headpond.repeats import PASSAGE
from headpond.settings import Settings
from headpond.telemetry.tracing import RequestTracer
from headpond.tenancy.quotas import Quotas

if TYPE_CHECKING:
    from headpond.http.jobs import JobsDoor
    from headpond.http.routers import Routers
    from headpond.http.usage import UsageDoor

__all__ = ["ASGIApp", "build_app"]

log = structlog.get_logger(__name__)


def build_app(
    records: Sequence[WorkloadRecord],
    backend: Backend,
    settings: Settings,
    *,
    jobs: JobsDoor | None = None,
    usage: UsageDoor | None = None,
    routers: Routers | None = None,
    tracer: RequestTracer | None = None,
    patience: Patience | None = None,
) -> ASGIApp:
    """Build the app. It serves at any prefix: what the server puts in `root_path` is cut.

    Args:
        records: The workloads to serve.
        backend: What answers their calls.
        settings: Keys, what needs one, and which web pages may call.
        jobs: Where files and batches are kept; without it there are none.
        usage: Where usage is kept; without it none is shown.
        routers: Counts here, and shows what others like this app count; without it each shows
            its own.
        tracer: Makes the spans of requests; without it there are none.
        patience: How long it waits.

    Raises:
        DeclarationError: Two records, or a record and the platform, declare one route; or a
            record names a panel that is not there.
        SettingsError: The file of keys cannot be read, or is wrong; or the client of the
            quotas' store is not installed.
    """
    keyring, quotas = Keyring.of(settings), Quotas(settings)
    tenancy, sessions = Tenancy(keyring, quotas), Sessions(settings.sessions)
    metrics = HttpMetrics() if routers is None else routers.metrics
    metrics.watch(sessions, keyring, quotas)

    async def own_metrics() -> str:
        return metrics.text() if routers is None else await routers.text()

    sockets: dict[str, SocketEndpoint] = {}
    declared: defaultdict[tuple[str, str], list[Endpoint]] = defaultdict(list)
    for record in records:
        for route in record.routes:
            if route.conversation is not None:
                sockets[route.path] = SocketEndpoint(
                    route, record, backend, tenancy, metrics, sessions, tracer
                )
                continue
            endpoint = Endpoint(
                route,
                record,
                backend,
                tenancy,
                metrics,
                patience=patience or Patience(),
                tracer=tracer,
            )
            declared[route.method, route.path].append(endpoint)
    probes = Probes(
        backend,
        keyring,
        own_metrics,
        None if jobs is None else jobs.metrics,
        metrics_open=settings.metrics_open,
    )
    platform = [
        *probes.routes(),
        *Models(backend, keyring).routes(),
        *Workloads(records, keyring).routes(),
        *Playground(records, secured=bool(settings.keys), jobs=jobs is not None).routes(),
        *(no_jobs() if jobs is None else jobs.routes(records, backend, keyring)),
        *([no_usage()] if usage is None else usage.routes(keyring)),
        _openapi(records, secured=keyring.secured, jobs=jobs is not None, usage=usage is not None),
    ]
    _refuse_collisions(records, platform)
    endpoints = {
        key: each[0] if len(each) == 1 else SharedEndpoint(each, backend)
        for key, each in declared.items()
    }
    forms = ErrorForms(records)

    async def stop() -> None:
        await sessions.drain()
        await quotas.store.close()

    app = App(endpoints, platform, metrics, forms, sockets, stop)
    return OriginGate(app, settings, forms, metrics)


class App:
    """Sends declared routes straight to their endpoints, the rest through a router.

    When the server stops (ASGI's lifespan), the sessions of WebSockets are told and ended, and
    quotas are settled.
    """

    def __init__(
        self,
        endpoints: Mapping[tuple[str, str], ASGIApp],
        platform: Sequence[Route],
        metrics: HttpMetrics,
        forms: ErrorForms,
        sockets: Mapping[str, ASGIApp],
        stop: Callable[[], Awaitable[None]],
    ) -> None:
        self._forms = forms
        self._endpoints = {key: app for key, app in endpoints.items() if "{" not in key[1]}
        self._metrics = metrics
        declared = [Route(path, app, methods=[method]) for (method, path), app in endpoints.items()]
        self._templates = [route for route in declared if "{" in route.path]
        self._sockets = [WebSocketRoute(path, socket) for path, socket in sockets.items()]
        upgrades = [Route(path, _upgrade) for path in sockets]

        @asynccontextmanager
        async def lifespan(_: object) -> AsyncIterator[None]:
            yield
            await stop()

        self._router = Router(
            [*declared, *platform, *upgrades], redirect_slashes=False, lifespan=lifespan
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, handshake or lifespan."""
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        if (passage := scope.get(PASSAGE)) is not None:
            self._metrics.shed(passage.refused)
        endpoint = self._endpoints.get((scope["method"], local_path(scope))) or self._template(
            scope
        )
        if endpoint is not None:
            await endpoint(scope, receive, send)
        else:
            await self._route(scope, receive, send)

    def _template(self, scope: Scope) -> ASGIApp | None:
        """Return the endpoint whose path has parameters that fit; the scope then has them."""
        for route in self._templates:
            match, child = route.matches(scope)
            if match is Match.FULL:
                scope.update(child)
                return route.app
        return None

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        for route in self._sockets:
            match, child = route.matches(scope)
            if match is Match.FULL:
                scope.update(child)
                await route.app(scope, receive, send)
                return
        await receive()
        status = GONE
        try:
            with suppress(OSError):
                status = await refuse(scope, send, NotFound())
        finally:
            self._metrics.count(UNMATCHED, status)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        identifier = request_id(dict(scope["headers"]))
        reply = Reply(send, identifier, self._forms.at(local_path(scope)))

        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                message["headers"].append((b"x-request-id", identifier.encode()))
            try:
                await send(message)
            except OSError as error:
                raise CallerGone from error

        try:
            await self._routed(scope, receive, tagged)
        except HeadpondError as error:
            await reply.fail(error)
        except CallerGone:
            pass
        except Exception:
            log.exception("request_fault", request_id=identifier)
            if not reply.started:
                await reply.fail(HeadpondError())
        finally:
            route = scope.get("route")
            self._metrics.count(route.path if route is not None else UNMATCHED, reply.status)

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # with it the router raises, instead of answering in plain text
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
            if error.status_code != 405:
                raise NotFound from None
            if scope["method"] != "OPTIONS":
                raise MethodNotAllowed(", ".join(allowed)) from None
            response = Response(
                status_code=204, headers={"allow": ", ".join([*allowed, "OPTIONS"])}
            )
            await response(scope, receive, send)


async def _upgrade(_: Request) -> Response:
    raise UpgradeRequired


def _openapi(records: Sequence[WorkloadRecord], *, secured: bool, jobs: bool, usage: bool) -> Route:
    derived = document(records, secured=secured, jobs=jobs, usage=usage)

    async def openapi(request: Request) -> Response:
        servers = [{"url": request.scope.get("root_path") or "/"}]
        return JSONResponse({**derived, "servers": servers})

    return Route(OPENAPI_PATH, openapi)


def _refuse_collisions(records: Sequence[WorkloadRecord], platform: Sequence[Route]) -> None:
    """Refuse one route that is declared twice, unless each request on it names its model."""
    routes = [route for record in records for route in record.routes]
    counts = Counter((route.method, route.path) for route in routes)
    ours = {(method, route.path) for route in platform for method in route.methods or ()}
    paths = {route.path for route in platform}
    for route in routes:
        count = counts[route.method, route.path] + ((route.method, route.path) in ours)
        if count > 1 and not (can_be_shared(route) and route.path not in paths):
            raise DeclarationError(
                f"the route {route.method} {route.path} is declared {count} times; keep one"
            )
