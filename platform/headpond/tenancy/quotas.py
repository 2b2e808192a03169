"""The quotas of all tenants."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from headpond.config_file import SettingsError
from headpond.record import WorkloadRecord
from headpond.registry import workloads
from headpond.settings import Quota, Settings
from headpond.tenancy.allowance import Allowance, Share
from headpond.tenancy.quota_store import QuotaStore
from headpond.tenancy.watched_file import WatchedFile
from headpond.tenancy.window import Window
from headpond.units import REQUESTS


class Quotas(Collector):
    """Says what each request may take; on one event loop's thread."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep the quotas of the settings, and look at their file, if they are from one.

        Args:
            settings: Tenants, and where their use is counted.
            clock: Unix seconds.
            monotonic: Seconds, by which the file is looked at.

        Raises:
            SettingsError: The client of the store is not installed, or the file is wrong now.
        """
        self._fixed = _quotas_of(settings)
        path = settings.path
        self._file = None if path is None else WatchedFile(path, _read, "quotas", monotonic)
        self.store = QuotaStore(settings.quota_store)
        self._clock = clock
        self._refused: Counter[tuple[str, str]] = Counter()

    def allowance(self, tenant: str, workload: str) -> Allowance:
        """Return what a request of a tenant may take of its quotas for a workload.

        Those of a file are read again first when it has changed. Limits change in the window
        that is under way: what has been used stays used.
        """
        if self._file is not None:
            self._file.refresh()
        now_s = self._clock()
        shares = [
            Share(quota, Window.at(tenant, quota, now_s))
            for quota in self._quotas.get(tenant, ())
            if quota.workload in ("*", workload)
        ]
        return Allowance(shares, self.store, self._clock, self._count)

    def collect(self) -> Iterator[Metric]:
        """Yield how many requests were refused for a quota, and how the store is."""
        if self._file is not None:
            yield CounterMetricFamily(
                "headpond_quotas_file_failures",
                "Times that the file of settings changed and its quotas could not be taken.",
                value=self._file.failures,
            )
        if not self._quotas:
            return
        refused = CounterMetricFamily(
            "headpond_quota_refused",
            "Requests that were refused for a quota.",
            labels=("workload", "unit"),
        )
        for labels, count in sorted(self._refused.items()):
            refused.add_metric(labels, count)
        yield refused
        yield from self.store.collect()

    @property
    def _quotas(self) -> Mapping[str, Sequence[Quota]]:
        return self._fixed if self._file is None else self._file.entries

    def _count(self, quota: Quota) -> None:
        self._refused[quota.workload, quota.unit] += 1


def _quotas_of(settings: Settings) -> Mapping[str, Sequence[Quota]]:
    return {name: tenant.quotas for name, tenant in settings.tenants.items() if tenant.quotas}


def _read(path: Path) -> Mapping[str, Sequence[Quota]]:
    settings = Settings.load(path)
    check_units(settings, list(workloads().values()))
    return _quotas_of(settings)


def check_units(settings: Settings, records: Sequence[WorkloadRecord]) -> None:
    """Check that something is counted in the unit of each quota.

    Args:
        settings: With the quotas.
        records: All that is served, not a part of it.

    Raises:
        SettingsError: A quota is of a workload that is not served, or of no unit of its.
    """
    units = {record.name: set(record.units_by_name) for record in records}
    units["*"] = {unit for each in units.values() for unit in each}
    for name, tenant in settings.tenants.items():
        for number, quota in enumerate(tenant.quotas):
            where = f"tenants.{name}.quotas.{number}"
            if quota.workload not in units:
                text = f"{where}.workload: there is no workload {quota.workload}"
                raise SettingsError(text, param=f"{where}.workload")
            known = {REQUESTS, *units[quota.workload]}
            if quota.unit not in known:
                text = f"{where}.unit: must be one of {', '.join(sorted(known))}"
                raise SettingsError(text, param=f"{where}.unit")
