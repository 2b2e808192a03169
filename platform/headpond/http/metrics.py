"""What the HTTP layer measures of itself: answers, and phases as callers live through them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headpond.http.sessions import Sessions
from headpond.telemetry.histogram import Histogram
from headpond.telemetry.outcomes import OK, Account

UNMATCHED = "(none)"
"""The route under which answers are counted that no route gave."""


class HttpMetrics(Collector):
    """Answers by route and status, phases by workload, and sessions; on one event loop's thread."""

    def __init__(self, *others: Collector) -> None:
        """Start with nothing counted.

        Args:
            others: What else the process shows.
        """
        self._sessions: Sessions | None = None
        self._answers: Counter[tuple[str, int]] = Counter()
        self._shed = 0
        self._accounts: dict[str, Account] = {}
        self._phases: dict[tuple[str, str], Histogram] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        for collector in (self, *others):
            self._registry.register(collector)

    def watch(self, sessions: Sessions, *others: Collector) -> None:
        """Show sessions, as they are at each scrape, and what else an app counts."""
        self._sessions = sessions
        for collector in others:
            self._registry.register(collector)

    def account(self, workload: str) -> Account:
        """Return where the requests of a workload are counted, and the calls of its sessions."""
        return self._accounts.setdefault(workload, Account())

    def count(self, route: str, status: int) -> None:
        """Count one answer.

        Args:
            route: A declared path or `UNMATCHED`, never a caller's own.
            status: What was sent; 499 when the caller went away before.
        """
        self._answers[route, status] += 1

    def shed(self, count: int) -> None:
        """Note how many requests were refused at the edge up to now; no app has seen them."""
        self._shed = count

    def observe(self, workload: str, phases_s: Mapping[str, float]) -> None:
        """Count the phases of one answer that went well, validation and delivery included."""
        for phase, spent_s in phases_s.items():
            histogram = self._phases.get((workload, phase))
            if histogram is None:
                histogram = self._phases[workload, phase] = Histogram()
            histogram.observe(spent_s)

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        answers = CounterMetricFamily(
            "headpond_http_responses", "HTTP answers.", labels=("route", "status")
        )
        for (route, status), count in sorted(self._answers.items()):
            answers.add_metric((route, str(status)), count)
        yield answers
        yield CounterMetricFamily(
            "headpond_http_shed",
            "Requests that were refused before anything was looked up.",
            value=self._shed,
        )
        yield from self._account_families()
        phases = HistogramMetricFamily(
            "headpond_http_phase_seconds",
            "Seconds of each phase on the callers' side, as in server-timing.",
            labels=("workload", "phase"),
        )
        for (workload, phase), histogram in self._phases.items():
            histogram.add_to(phases, {"workload": workload, "phase": phase})
        yield phases
        if self._sessions is not None:
            yield from _session_families(self._sessions)

    def _account_families(self) -> Iterator[Metric]:
        received = CounterMetricFamily(
            "headpond_http_received",
            "Requests of a workload's routes, and calls of its sessions.",
            labels=("workload",),
        )
        finished = CounterMetricFamily(
            "headpond_http_finished",
            "Those that are over and were not refused: ok, failed, or request_cancelled.",
            labels=("workload", "outcome"),
        )
        refused = CounterMetricFamily(
            "headpond_http_refused",
            "Those that were refused before any work.",
            labels=("workload", "code"),
        )
        still = GaugeMetricFamily(
            "headpond_http_open", "Those that are not over.", labels=("workload",)
        )
        for workload, account in self._accounts.items():
            received.add_metric((workload,), account.received)
            still.add_metric((workload,), account.open)
            for word, count in sorted({OK: 0, **account.finished}.items()):
                finished.add_metric((workload, word), count)
            for word, count in sorted(account.refused.items()):
                refused.add_metric((workload, word), count)
        yield from (received, finished, refused, still)

    def text(self) -> str:
        """Return everything in the Prometheus text format."""
        return generate_latest(self._registry).decode()


def _session_families(sessions: Sessions) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "headpond_sessions",
        "WebSocket sessions, by whether a client is there.",
        labels=("state",),
    )
    for state, count in sessions.counts.items():
        states.add_metric((state,), count)
    yield states
    ended = CounterMetricFamily(
        "headpond_sessions_ended", "WebSocket sessions that are over.", labels=("reason",)
    )
    for reason, count in sorted(sessions.ended.items()):
        ended.add_metric((reason,), count)
    yield ended
    yield CounterMetricFamily(
        "headpond_sessions_resumed",
        "Times that a client came back to its session.",
        value=sessions.resumed,
    )
