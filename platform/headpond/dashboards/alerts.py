"""Alert rules for Prometheus, derived from the records' own bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headpond.dashboards.promql import failed, quantile, rate, ratio, total
from headpond.engine import Json
from headpond.record import WorkloadRecord

_WINDOW = "5m"
_WRONG_SHARE, _REFUSED_SHARE, _FULL_SHARE = 0.02, 0.1, 0.95
_LATE_SHARE = 0.95


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One rule.

    Attributes:
        name: What it is called.
        promql: True, with the series at fault, while something is wrong.
        lasting: How long that has to last, as `5m`.
        severity: `page` where users are hurt now, `ticket` where they will be.
        summary: What is wrong, and with what.
        advice: What to look at first.
    """

    name: str
    promql: str
    lasting: str
    severity: str
    summary: str
    advice: str

    def document(self) -> dict[str, Json]:
        """Return it as Prometheus takes it."""
        return {
            "alert": self.name,
            "expr": self.promql,
            "for": self.lasting,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "description": self.advice},
        }


def rules(records: Mapping[str, WorkloadRecord]) -> dict[str, Json]:
    """Return a file of rules: of the platform, and of each workload's latency bounds."""
    groups: list[Json] = [_group("headpond", platform_alerts())]
    groups += [
        _group(f"headpond-{name}", workload_alerts(record))
        for name, record in sorted(records.items())
    ]
    return {"groups": groups}


def _group(name: str, alerts: Iterator[Alert]) -> dict[str, Json]:
    return {"name": name, "rules": [alert.document() for alert in alerts]}


def platform_alerts() -> Iterator[Alert]:
    """Yield the alerts that hold for every workload."""
    received = rate("headpond_http_received_total", "", "workload", _WINDOW)
    wrong = rate("headpond_http_finished_total", failed(""), "workload", _WINDOW)
    yield Alert(
        name="HeadpondFailures",
        promql=f"{ratio(wrong, received)} > {_WRONG_SHARE}",
        lasting="5m",
        severity="page",
        summary="More than 2 % of the requests for {{ $labels.workload }} fail.",
        advice="The log lines of these requests name the outcome; so does the label `outcome` of "
        "headpond_http_finished_total.",
    )
    busy = rate("headpond_http_refused_total", 'code="overloaded"', "workload", _WINDOW)
    yield Alert(
        name="HeadpondOverload",
        promql=f"{ratio(busy, received)} > {_REFUSED_SHARE}",
        lasting="10m",
        severity="page",
        summary="More than 10 % of the requests for {{ $labels.workload }} are refused for load.",
        advice="Add replicas, or lower the load; `headpond plan` says how many a load takes.",
    )
    absent = rate("headpond_http_refused_total", 'code="model_not_ready"', "workload", _WINDOW)
    yield Alert(
        name="HeadpondNotReady",
        promql=f"{absent} > 0",
        lasting="2m",
        severity="page",
        summary="Requests for {{ $labels.workload }} find no replica that is ready.",
        advice="`headpond status` says why; Serve's log has the reason that a replica does not "
        "start.",
    )
    full = ratio(
        total("headpond_state_held_bytes", "", "workload, model"),
        total("headpond_state_budget_bytes", "", "workload, model"),
    )
    waiting = total("headpond_waiting", "", "workload, model")
    yield Alert(
        name="HeadpondStateFull",
        promql=f"({full} > {_FULL_SHARE}) and ({waiting} > 0)",
        lasting="15m",
        severity="ticket",
        summary="{{ $labels.model }} has had no free state for 15 minutes, and requests wait.",
        advice="More `state_bytes` let more requests run at once, if the memory is there.",
    )
    yield Alert(
        name="HeadpondLeftover",
        promql="(headpond_running > 0 or headpond_waiting > 0) "
        "and on (workload, model, bundle, replica) (headpond_open == 0)",
        lasting="5m",
        severity="ticket",
        summary="A replica of {{ $labels.model }} holds work that belongs to no call.",
        advice="That is a bug of ours: please report it, with the replica's log.",
    )


def workload_alerts(record: WorkloadRecord) -> Iterator[Alert]:
    """Yield an alert for each latency bound under which the work of a workload counts."""
    measured = {
        "first_output_s": ("FirstOutput", "headpond_first_output_seconds", "first output"),
        "gap_s": ("Gap", "headpond_gap_seconds", "time between outputs"),
        "total_s": ("Total", "headpond_request_seconds", "time in all"),
    }
    matching = f'workload="{record.name}"'
    title = record.name.capitalize()
    for field, (name, histogram, text) in measured.items():
        bounds = [getattr(rate.bounds, field) for rate in record.throughput]
        given = [bound for bound in bounds if bound is not None]
        if not given:
            continue
        late = quantile(_LATE_SHARE, histogram, matching, "model", _WINDOW)
        yield Alert(
            name=f"Headpond{title}{name}",
            promql=f"{late} > {max(given):g}",
            lasting="10m",
            severity="ticket",
            summary=f"The {text} of {{{{ $labels.model }}}} is above {max(given):g} s for more "
            "than 5 % of its calls.",
            advice="Its dashboard shows in which phase the time goes.",
        )
