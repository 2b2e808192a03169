"""What `/metrics` tells of jobs: sums over all tenants, of what the database says now."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headpond.errors import HeadpondError
from headpond.jobs.access import JobsAccess
from headpond.jobs.job import JobStatus
from headpond.jobs.store import Totals


class JobMetrics:
    """Asks the database at each scrape; every router shows the same."""

    def __init__(self, access: JobsAccess) -> None:
        self._access = access

    async def text(self) -> str:
        """Return the families in the Prometheus text format.

        A database that is away is told, and keeps nothing else from being shown.
        """
        registry = CollectorRegistry(auto_describe=False)
        try:
            totals = await (await self._access.jobs()).totals()
        except HeadpondError:
            registry.register(_Up(0))
        else:
            registry.register(_Up(1))
            registry.register(_Families(totals))
        return generate_latest(registry).decode()


class _Up(Collector):
    def __init__(self, up: int) -> None:
        self._up = up

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "headpond_jobs_store_up", "Whether the database of jobs answers.", value=self._up
        )


class _Families(Collector):
    def __init__(self, totals: Totals) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("headpond_jobs", "Batch jobs.", labels=("status",))
        for status in JobStatus:
            jobs.add_metric((status.value,), self._totals.jobs.get(status, 0))
        yield jobs
        records = CounterMetricFamily(
            "headpond_job_records",
            "Records of batch jobs with a result, or an error.",
            labels=("endpoint", "outcome"),
        )
        done = CounterMetricFamily(
            "headpond_job_work", "Bytes of records that are done.", labels=("endpoint",)
        )
        left = GaugeMetricFamily(
            "headpond_job_work_left", "Bytes of records to be done.", labels=("endpoint",)
        )
        for endpoint, tally in sorted(self._totals.endpoints.items()):
            records.add_metric((endpoint, "completed"), tally.completed)
            records.add_metric((endpoint, "failed"), tally.failed)
            done.add_metric((endpoint,), tally.work_done)
            left.add_metric((endpoint,), tally.work_left)
        yield from (records, done, left)
