"""The metrics of all routers of an application, whichever of them is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from prometheus_client.registry import Collector

from headpond.errors import WorkerLost
from headpond.http.metrics import HttpMetrics
from headpond.telemetry.exposition import merge_expositions


class Routers:
    """Every router's own counts side by side, told apart by a `router` label.

    A scraper asks one address, and another router may answer each time: with the counts of
    one, its counters would jump.

    Attributes:
        metrics: What this router counts.
    """

    def __init__(
        self, name: str, ask: Callable[[], Awaitable[Mapping[str, str]]], *others: Collector
    ) -> None:
        """Start with nothing counted.

        Args:
            name: This router's.
            ask: Returns what each router that answers counts, by its name, as `own` has it.
            others: What else this router shows.
        """
        self.metrics = HttpMetrics(*others)
        self._name = name
        self._ask = ask

    def own(self) -> tuple[str, str]:
        """Return this router's name, and its counts in the Prometheus text format."""
        return self._name, self.metrics.text()

    async def text(self) -> str:
        """Return the counts of all in the Prometheus text format; its own if nobody answers."""
        try:
            found = await self._ask()
        except WorkerLost:
            found = {}
        return merge_expositions({**found, self._name: self.metrics.text()}, "router")
