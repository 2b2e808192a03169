"""Queries over our metrics in PromQL, each written once for dashboards and alerts."""

from __future__ import annotations

from headpond.telemetry.outcomes import CANCELLED, OK

WINDOW = "$__rate_interval"
"""Grafana's: long enough for a rate at every zoom."""


def rate(metric: str, matching: str, by: str, window: str = WINDOW) -> str:
    """Return a counter's rate per second, summed by labels."""
    return f"sum by ({by}) (rate({metric}{{{matching}}}[{window}]))"


def total(metric: str, matching: str, by: str) -> str:
    """Return a gauge, summed by labels."""
    return f"sum by ({by}) ({metric}{{{matching}}})"


def quantile(share: float, histogram: str, matching: str, by: str, window: str = WINDOW) -> str:
    """Return the value that a share of what a histogram counted stays below."""
    buckets = rate(f"{histogram}_bucket", matching, f"{by}, le", window)
    return f"histogram_quantile({share:g}, {buckets})"


def ratio(part: str, whole: str) -> str:
    """Return a part of a whole; nothing where there is no whole."""
    return f"({part}) / ({whole} > 0)"


def failed(matching: str) -> str:
    """Return what picks finished calls that failed: neither went well nor were cancelled."""
    joint = f"{matching}, " if matching else ""
    return f'{joint}outcome!~"{OK}|{CANCELLED}"'


def ok(matching: str) -> str:
    """Return what picks finished calls that went well."""
    joint = f"{matching}, " if matching else ""
    return f'{joint}outcome="{OK}"'


def cancelled(matching: str) -> str:
    """Return what picks calls whose callers went away."""
    joint = f"{matching}, " if matching else ""
    return f'{joint}outcome="{CANCELLED}"'
