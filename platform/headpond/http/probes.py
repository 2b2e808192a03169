"""Probes and metrics: what an orchestrator and a scraper ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headpond.call import Backend
from headpond.http.auth import Keyring
from headpond.http.responses import json_response

if TYPE_CHECKING:
    from headpond.http.job_metrics import JobMetrics

ALIVE_PATH = "/healthz"
READY_PATHS = ("/readyz", "/health", "/ping")
"""`/health` and `/ping` are what other servers call it; a stuck engine fails them all."""
METRICS_PATH = "/metrics"
OIP_PATH = "/v2"
OIP_LIVE_PATH, OIP_READY_PATH = "/v2/health/live", "/v2/health/ready"
"""The server-wide part of the Open Inference Protocol v2; its models' part is workloads'."""


class Alive(BaseModel):
    """The process runs, and its event loop answers."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Whether every model can serve, and why those that can't, can't."""

    status: Literal["ok", "not_ready"]
    not_ready: Mapping[str, str]


class OipServer(BaseModel):
    """Server metadata of the Open Inference Protocol v2."""

    name: str = "headpond"
    version: str
    extensions: tuple[str, ...] = ("binary_tensor_data", "classification")


class OipHealth(BaseModel):
    """Health of the Open Inference Protocol v2: clients go by the status, some by the keys."""

    live: bool = True
    ready: bool


class Probes:
    """Answers probes without a key, and metrics with one unless they are open."""

    def __init__(
        self,
        backend: Backend,
        keyring: Keyring,
        own_metrics: Callable[[], Awaitable[str]],
        jobs: JobMetrics | None,
        *,
        metrics_open: bool,
    ) -> None:
        self._backend = backend
        self._keyring = keyring
        self._own_metrics = own_metrics
        self._jobs = jobs
        self._metrics_open = metrics_open

    def routes(self) -> list[Route]:
        """Return the routes of all probes and of the metrics."""
        ready = [Route(path, self._ready) for path in READY_PATHS]
        return [
            Route(ALIVE_PATH, self._alive),
            *ready,
            Route(METRICS_PATH, self._scrape),
            Route(OIP_PATH, self._oip_server),
            Route(OIP_LIVE_PATH, self._oip_live),
            Route(OIP_READY_PATH, self._oip_ready),
        ]

    async def _alive(self, _: Request) -> Response:
        return json_response(Alive())

    async def _ready(self, _: Request) -> Response:
        reasons = await self._backend.not_ready()
        if reasons:
            return json_response(Readiness(status="not_ready", not_ready=reasons), 503)
        return json_response(Readiness(status="ok", not_ready={}))

    async def _oip_server(self, _: Request) -> Response:
        return json_response(OipServer(version=version("headpond")))

    async def _oip_live(self, _: Request) -> Response:
        return json_response(OipHealth(ready=not await self._backend.not_ready()))

    async def _oip_ready(self, _: Request) -> Response:
        ready = not await self._backend.not_ready()
        return json_response(OipHealth(ready=ready), 200 if ready else 503)

    async def _scrape(self, request: Request) -> Response:
        if not self._metrics_open:
            headers = dict(request.scope["headers"])
            self._keyring.authenticate(headers, METRICS_PATH).require_metrics()
        text = await self._backend.metrics() + await self._own_metrics()
        if self._jobs is not None:
            text += await self._jobs.text()
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)
