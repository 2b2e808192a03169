"""The dashboards: one of everything that is served, and one of each workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headpond.dashboards.grafana import Dashboard, Panel, Query, Variable
from headpond.dashboards.promql import cancelled, failed, ok, quantile, rate, ratio, total
from headpond.record import PhaseKind, WorkloadRecord

_ALL = 'workload=~"$workload", model=~"$model"'
_HTTP = 'workload=~"$workload"'
_EACH = "workload, model"
_NAMED = "{{workload}} {{model}}"
_QUANTILES = (0.5, 0.95, 0.99)


def dashboards(records: Mapping[str, WorkloadRecord]) -> Mapping[str, Dashboard]:
    """Return the dashboards of workloads, by the name of the file each belongs into."""
    pages = {name: workload_page(record) for name, record in sorted(records.items())}
    return {"overview": overview_page(), **pages}


def overview_page() -> Dashboard:
    """Return the dashboard of everything that is served."""
    return Dashboard(
        uid="headpond-overview",
        title="Headpond",
        panels=(*_door_panels(), *_load_panels(_ALL), *_process_panels(_ALL)),
        variables=(
            Variable(name="workload", promql="label_values(headpond_http_open, workload)"),
            Variable(
                name="model",
                promql='label_values(headpond_open{workload=~"$workload"}, model)',
            ),
        ),
    )


def workload_page(record: WorkloadRecord) -> Dashboard:
    """Return the dashboard of one workload, of what its record declares."""
    matching = f'workload="{record.name}", model=~"$model"'
    model = f'label_values(headpond_open{{workload="{record.name}"}}, model)'
    return Dashboard(
        uid=f"headpond-{record.name}",
        title=f"Headpond: {record.name}",
        panels=(
            *_load_panels(matching),
            *_latency_panels(matching),
            _phase_panel(record, matching),
            *_work_panels(record, matching),
            *_tally_panels(record, matching),
        ),
        variables=(Variable(name="model", promql=model),),
    )


def _door_panels() -> Iterator[Panel]:
    """Yield what callers live through."""
    http = "headpond_http"
    ends: Sequence[tuple[str, str, str]] = (
        ("ok", f"{http}_finished_total", ok(_HTTP)),
        ("failed", f"{http}_finished_total", failed(_HTTP)),
        ("cancelled", f"{http}_finished_total", cancelled(_HTTP)),
        ("refused", f"{http}_refused_total", _HTTP),
    )
    yield Panel(
        title="Requests by how they ended",
        queries=[
            Query(promql=rate(metric, matching, "workload"), legend=f"{{{{workload}}}} {end}")
            for end, metric, matching in ends
        ],
        unit="reqps",
        stacked=True,
        width=12,
        summary="At the front door. What came is what ended in one of these four ways.",
    )
    yield Panel(
        title="Refusals and failures by reason",
        queries=[
            Query(
                promql=rate(f"{http}_refused_total", _HTTP, "workload, code"),
                legend="{{workload}} {{code}}",
            ),
            Query(
                promql=rate(f"{http}_finished_total", failed(_HTTP), "workload, outcome"),
                legend="{{workload}} {{outcome}}",
            ),
        ],
        unit="reqps",
        width=12,
    )


def _load_panels(matching: str) -> Iterator[Panel]:
    yield Panel(
        title="Running and waiting",
        queries=[
            Query(promql=total("headpond_running", matching, _EACH), legend=f"{_NAMED} running"),
            Query(promql=total("headpond_waiting", matching, _EACH), legend=f"{_NAMED} waiting"),
        ],
        summary="Items that hold state, and items in the queue.",
    )
    state = ratio(
        total("headpond_state_held_bytes", matching, _EACH),
        total("headpond_state_budget_bytes", matching, _EACH),
    )
    yield Panel(
        title="State in use",
        queries=[Query(promql=state, legend=_NAMED)],
        unit="percentunit",
        summary="At 1 every new request waits for another to end.",
    )
    yield Panel(
        title="Goodput",
        queries=[
            Query(
                promql=rate("headpond_goodput_total", matching, f"{_EACH}, unit"),
                legend=f"{_NAMED} {{{{unit}}}}/s",
            )
        ],
        summary="Work of calls that kept the latency bounds of their workload.",
    )


def _latency_panels(matching: str) -> Iterator[Panel]:
    for title, histogram in (
        ("Time to the first output", "headpond_first_output_seconds"),
        ("Time between outputs", "headpond_gap_seconds"),
        ("Time in all", "headpond_request_seconds"),
    ):
        yield Panel(
            title=title,
            queries=[
                Query(
                    promql=quantile(share, histogram, matching, "model"),
                    legend=f"{{{{model}}}} p{share * 100:g}",
                )
                for share in _QUANTILES
            ],
            unit="s",
        )


def _phase_panel(record: WorkloadRecord, matching: str) -> Panel:
    kinds = (PhaseKind.HOST, PhaseKind.QUEUE, PhaseKind.DEVICE, PhaseKind.DELIVERY)
    phases = sorted(record.phases, key=lambda phase: kinds.index(phase.kind))
    ended = rate("headpond_request_seconds_count", matching, "workload")
    return Panel(
        title="Where the time goes",
        queries=[
            Query(
                promql=ratio(
                    rate(
                        "headpond_phase_seconds_sum",
                        f'{matching}, phase="{phase.name}"',
                        "workload",
                    ),
                    ended,
                ),
                legend=f"{phase.name} ({phase.kind.value})",
            )
            for phase in phases
        ],
        unit="s",
        stacked=True,
        width=24,
        summary="Mean seconds of each phase; together they are the mean time in all.",
    )


def _work_panels(record: WorkloadRecord, matching: str) -> Iterator[Panel]:
    for unit in record.units:
        one = f'{matching}, unit="{unit.name}"'
        good = f"{one}" if _is_rated(record, unit.name) else None
        queries = [Query(promql=rate("headpond_work_total", one, "model"), legend="{{model}} done")]
        if good is not None:
            queries.append(
                Query(
                    promql=rate("headpond_goodput_total", good, "model, within"),
                    legend="{{model}} within {{within}}",
                )
            )
        yield Panel(
            title=f"{unit.name} a second",
            queries=queries,
            summary=f"Unit: {unit.summary}.",
        )


def _is_rated(record: WorkloadRecord, unit: str) -> bool:
    return any(rate.unit == unit for rate in record.throughput)


def _tally_panels(record: WorkloadRecord, matching: str) -> Iterator[Panel]:
    for tally in record.tallies:
        yield Panel(
            title=f"{tally.name} a second",
            queries=[
                Query(
                    promql=rate(f"headpond_{tally.name}_total", matching, "model"),
                    legend="{{model}}",
                )
            ],
            summary=tally.summary,
        )
    yield Panel(
        title="Preemptions a second",
        queries=[
            Query(promql=rate("headpond_preemptions_total", matching, "model"), legend="{{model}}")
        ],
        summary="Items that lost their state to older ones and are computed again.",
    )


def _process_panels(matching: str) -> Iterable[Panel]:
    held = total("process_resident_memory_bytes", "", "replica")
    yield Panel(
        title="Memory of replicas",
        queries=[Query(promql=held, legend="{{replica}}")],
        unit="bytes",
    )
    yield Panel(
        title="CPU of replicas",
        queries=[
            Query(promql=rate("process_cpu_seconds_total", "", "replica"), legend="{{replica}}")
        ],
    )
    yield Panel(
        title="Replicas",
        queries=[Query(promql=f"count by ({_EACH}) (headpond_open{{{matching}}})", legend=_NAMED)],
    )
    yield Panel(
        title="WebSocket sessions",
        queries=[Query(promql=total("headpond_sessions", "", "state"), legend="{{state}}")],
    )
