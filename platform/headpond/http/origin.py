"""Which web pages may call: the server's own, and those that the operator allows.

A browser lets a page of any site send simple requests and open WebSockets to any server that
it can reach, one on the same machine included; the page can't read the answer, but the work is
done. Browsers say which site it is in `Origin`; what is no browser sends none.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from headpond.http.errors import OriginNotAllowed
from headpond.http.forms import ErrorForms
from headpond.http.handshake import refuse
from headpond.http.headers import request_id
from headpond.http.metrics import UNMATCHED, HttpMetrics
from headpond.http.reply import GONE, Reply
from headpond.http.target import local_path
from headpond.settings import Settings

_PORTS = {"http": 80, "https": 443}
_EXPOSED = (
    "retry-after",
    "retry-after-ms",
    "server-timing",
    "x-headpond-bundle",
    "x-headpond-work",
    "x-request-id",
    "x-should-retry",
)
_QUOTAS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
"""Headers of answers that the pages of other origins may read."""


class OriginGate:
    """Refuses what comes from pages of other sites, before anything else looks at it."""

    def __init__(
        self, app: ASGIApp, settings: Settings, forms: ErrorForms, metrics: HttpMetrics
    ) -> None:
        """Stand before an app.

        Args:
            app: What is guarded.
            settings: The origins that are allowed, and whether `x-forwarded-host` is trusted.
            forms: How errors look.
            metrics: Where refusals are counted.
        """
        self._app = _shared(app, settings) if settings.allowed_origins else app
        self._allowed = frozenset(settings.allowed_origins)
        self._host = b"x-forwarded-host" if settings.trust_forwarded_host else b"host"
        self._forms = forms
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, handshake or lifespan."""
        if scope["type"] == "lifespan" or self._is_open_to(scope["headers"]):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await self._refuse_handshake(scope, send)
        else:
            identifier = request_id(dict(scope["headers"]))
            reply = Reply(send, identifier, self._forms.at(local_path(scope)))
            await reply.fail(OriginNotAllowed())
            self._metrics.count(UNMATCHED, reply.status)

    def _is_open_to(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        if not origins:
            return True
        given = dict(headers)
        host = given.get(self._host, given.get(b"host", b"")).decode("latin-1")
        return all(each in self._allowed or is_of(each, host) for each in origins)

    async def _refuse_handshake(self, scope: Scope, send: Send) -> None:
        status = GONE
        try:
            with suppress(OSError):
                status = await refuse(scope, send, OriginNotAllowed())
        finally:
            self._metrics.count(UNMATCHED, status)


def is_of(origin: str, host: str) -> bool:
    """Return whether an origin is that of a host, as `Host` names it.

    The scheme is no part of it: a proxy may have taken TLS off. Where no port is named, it is
    the usual one of the origin's scheme.
    """
    scheme, separator, authority = origin.partition("://")
    if not separator or scheme not in _PORTS:
        return False
    usual = _PORTS[scheme]
    own = _host_and_port(host.partition(",")[0].strip(), usual)
    return own is not None and own == _host_and_port(authority, usual)


def _host_and_port(authority: str, usual: int) -> tuple[str, int] | None:
    try:
        parts = urlsplit(f"//{authority}")
        port = parts.port
    except ValueError:
        return None
    if parts.hostname is None or parts.netloc != authority or "@" in authority:
        return None
    return parts.hostname, usual if port is None else port


def _shared(app: ASGIApp, settings: Settings) -> ASGIApp:
    """Tell browsers that pages of the allowed origins may read the answers."""
    quotas = (quota for tenant in settings.tenants.values() for quota in tenant.quotas)
    units = {quota.unit.replace("_", "-") for quota in quotas}
    rates = [f"{name}-{unit}" for unit in sorted(units) for name in _QUOTAS]
    return CORSMiddleware(
        app,
        allow_origins=settings.allowed_origins,
        allow_methods=("*",),
        allow_headers=("*",),
        allow_private_network=True,
        expose_headers=(*_EXPOSED, *rates),
    )
