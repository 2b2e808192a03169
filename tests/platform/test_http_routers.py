"""Metrics where several routers stand behind one address."""

from __future__ import annotations

from collections.abc import Mapping

from headpond.errors import WorkerLost
from headpond.http.app import build_app
from headpond.http.metrics import HttpMetrics
from headpond.http.routers import Routers
from headpond.settings import Settings
from headpond.telemetry.scrape import Scrape
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend


class Other:
    """Another router, which counts for itself."""

    def __init__(self) -> None:
        self.metrics = HttpMetrics()
        self.there = True

    async def answer(self) -> Mapping[str, str]:
        """What it would say, were it asked."""
        if not self.there:
            raise WorkerLost
        return {"r2": self.metrics.text()}


async def scrape(backend: ScriptedBackend, routers: Routers) -> Scrape:
    """Ask the app of a router for metrics."""
    app = build_app([], backend, Settings(), routers=routers)
    for _ in range(2):
        request = await AsgiRequest(path="/metrics", method="GET").run(app)
    return Scrape.parse(request.body.decode(), 0.0)


async def test_whichever_router_is_asked_shows_them_all(backend: ScriptedBackend) -> None:
    other = Other()
    for _ in range(5):
        other.metrics.count("/metrics", 200)
    found = await scrape(backend, Routers("r1", other.answer))
    name = "headpond_http_responses_total"
    assert found.total(name, router="r1", route="/metrics") == 1
    assert found.total(name, router="r2", route="/metrics") == 5
    assert found.values("headpond_sessions", "router") == ["r1"]


async def test_a_router_shows_its_own_counts_when_no_other_answers(
    backend: ScriptedBackend,
) -> None:
    other = Other()
    other.there = False
    found = await scrape(backend, Routers("r1", other.answer))
    assert found.values("headpond_http_responses_total", "router") == ["r1"]
