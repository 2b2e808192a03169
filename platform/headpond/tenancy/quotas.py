"""The quotas of all tenants."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from headpond.config_file import SettingsError
from headpond.record import WorkloadRecord
from headpond.settings import Quota, Settings
from headpond.tenancy.allowance import Allowance, Share
from headpond.tenancy.quota_store import QuotaStore
from headpond.tenancy.window import Window
from headpond.units import REQUESTS


class Quotas(Collector):
    """Says what each request may take; on one event loop's thread."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        """Keep the quotas of the settings.

        Args:
            settings: Tenants, and where their use is counted.
            clock: Unix seconds.

        Raises:
            SettingsError: The client of the store is not installed.
        """
        self._quotas = {
            name: tenant.quotas for name, tenant in settings.tenants.items() if tenant.quotas
        }
        self.store = QuotaStore(settings.quota_store)
        self._clock = clock
        self._refused: Counter[tuple[str, str]] = Counter()

    def allowance(self, tenant: str, workload: str) -> Allowance:
        """Return what a request of a tenant may take of its quotas for a workload."""
        now_s = self._clock()
        shares = [
            Share(quota, Window.at(tenant, quota, now_s))
            for quota in self._quotas.get(tenant, ())
            if quota.workload in ("*", workload)
        ]
        return Allowance(shares, self.store, self._clock, self._count)

    def collect(self) -> Iterator[Metric]:
        """Yield how many requests were refused for a quota, and how the store is."""
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

    def _count(self, quota: Quota) -> None:
        self._refused[quota.workload, quota.unit] += 1


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
