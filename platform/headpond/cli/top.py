"""`headpond top`: what every model does now, at the front door and behind it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table

from headpond.cli.console import refusals
from headpond.cli.options import ApiKey, BaseUrl
from headpond.cli.server import Server, observed
from headpond.telemetry.outcomes import CANCELLED, OK
from headpond.telemetry.scrape import Interval


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """One model over an interval; all its replicas together.

    Attributes:
        workload: What it does.
        model: Its alias on its replicas.
        replicas: How many answered.
        running: Items that hold state.
        waiting: Items in the queue.
        state_share: Retained state in use, of the budget.
        ok_s: Calls that went well, per second.
        failed_s: Calls that failed, per second.
        cancelled_s: Calls whose callers left, per second.
        refused_s: Calls that were refused, per second.
        work_s: Work by unit, per second.
        goodput_s: Work of calls within the workload's latency bounds, by unit, per second.
        first_p50_s: Seconds to the first output, half of the calls; None without calls.
        first_p95_s: The same, 19 of 20.
        total_p95_s: Seconds in all, 19 of 20 calls.
    """

    workload: str
    model: str
    replicas: int
    running: int
    waiting: int
    state_share: float
    ok_s: float
    failed_s: float
    cancelled_s: float
    refused_s: float
    work_s: dict[str, float]
    goodput_s: dict[str, float]
    first_p50_s: float | None
    first_p95_s: float | None
    total_p95_s: float | None


@dataclass(frozen=True, kw_only=True)
class DoorRow:
    """One workload at the front door over an interval.

    Attributes:
        workload: Its name.
        open: Requests that are not over.
        received_s: Requests that came, per second.
        ok_s: Those that went well, per second.
        failed_s: Those that failed, per second.
        cancelled_s: Those whose callers left, per second.
        refused_s: Those that were refused, per second, by reason.
    """

    workload: str
    open: int
    received_s: float
    ok_s: float
    failed_s: float
    cancelled_s: float
    refused_s: dict[str, float]


def top(
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    *,
    interval: Annotated[float, typer.Option(help="Seconds between looks.", min=0.2)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print, and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON per interval, for scripts.")
    ] = False,
) -> None:
    """Show load, queue, goodput, refusals and latency of everything served, live."""
    with refusals(), suppress(KeyboardInterrupt), observed(base_url, api_key) as server:
        looks = intervals(server, interval)
        if once or as_json:
            for look in looks:
                _print(look, as_json=as_json)
                if once:
                    return
        with Live(auto_refresh=False, screen=True) as live:
            live.update("Looking…", refresh=True)
            for look in looks:
                live.update(tables(look), refresh=True)


def intervals(server: Server, seconds: float) -> Iterator[Interval]:
    """Yield what happens in each of the coming intervals.

    Raises:
        HeadpondError: The metrics can't be had.
    """
    before = server.scrape()
    while True:
        time.sleep(seconds)
        after = server.scrape()
        yield Interval(before=before, after=after)
        before = after


def door_rows(look: Interval) -> list[DoorRow]:
    """Return the front door's side, by workload."""
    rows = []
    for workload in look.after.values("headpond_http_open", "workload"):
        codes = look.after.values("headpond_http_refused_total", "code", workload=workload)
        ends = _ends(look, "headpond_http", workload=workload)
        rows.append(
            DoorRow(
                workload=workload,
                open=int(look.after.total("headpond_http_open", workload=workload)),
                received_s=look.rate("headpond_http_received_total", workload=workload),
                refused_s={
                    code: look.rate("headpond_http_refused_total", workload=workload, code=code)
                    for code in codes
                },
                **ends,
            )
        )
    return rows


def model_rows(look: Interval) -> list[ModelRow]:
    """Return the replicas' side, by workload and model."""
    rows = []
    for workload in look.after.values("headpond_open", "workload"):
        models = look.after.values("headpond_open", "model", workload=workload)
        rows += [_model_row(look, workload, model) for model in models]
    return rows


def _model_row(look: Interval, workload: str, model: str) -> ModelRow:
    named = {"workload": workload, "model": model}
    after = look.after
    budget = after.total("headpond_state_budget_bytes", **named)
    first, total = "headpond_first_output_seconds", "headpond_request_seconds"

    def by_unit(counter: str) -> dict[str, float]:
        units = after.values(counter, "unit", **named)
        return {unit: look.rate(counter, unit=unit, **named) for unit in units}

    return ModelRow(
        workload=workload,
        model=model,
        replicas=len(after.values("headpond_open", "replica", **named)) or 1,
        running=int(after.total("headpond_running", **named)),
        waiting=int(after.total("headpond_waiting", **named)),
        state_share=after.total("headpond_state_held_bytes", **named) / budget if budget else 0.0,
        refused_s=look.rate("headpond_refused_total", **named),
        work_s=by_unit("headpond_work_total"),
        goodput_s=by_unit("headpond_goodput_total"),
        first_p50_s=look.quantile(0.5, first, **named),
        first_p95_s=look.quantile(0.95, first, **named),
        total_p95_s=look.quantile(0.95, total, **named),
        **_ends(look, "headpond", **named),
    )


def _ends(look: Interval, prefix: str, **labels: str) -> dict[str, float]:
    finished = f"{prefix}_finished_total"
    ok_s = look.rate(finished, outcome=OK, **labels)
    cancelled_s = look.rate(finished, outcome=CANCELLED, **labels)
    failed_s = max(look.rate(finished, **labels) - ok_s - cancelled_s, 0.0)
    return {"ok_s": ok_s, "failed_s": failed_s, "cancelled_s": cancelled_s}


def _print(look: Interval, *, as_json: bool) -> None:
    if not as_json:
        Console().print(tables(look))
        return
    document = {
        "seconds": round(look.seconds, 3),
        "workloads": [asdict(row) for row in door_rows(look)],
        "models": [asdict(row) for row in model_rows(look)],
    }
    typer.echo(json.dumps(document))


def tables(look: Interval) -> Group:
    """Return both sides as tables for people."""
    door = Table(
        "front door", "open", "in/s", "ok/s", "failed/s", "cancelled/s", "refused/s", box=None
    )
    for row in door_rows(look):
        why = ", ".join(f"{code} {_rate(rate)}" for code, rate in row.refused_s.items() if rate)
        refused = f"{_rate(sum(row.refused_s.values()))} {why and f'({why})'}".strip()
        door.add_row(
            row.workload,
            str(row.open),
            *map(_rate, (row.received_s, row.ok_s, row.failed_s, row.cancelled_s)),
            refused,
        )
    models = Table(
        Column("model", no_wrap=True),
        *("runs", "waits", "state", "ok/s", "failed/s", "refused/s"),
        *("first p50 p95", "total p95, ms", "work/s (good)"),
        box=None,
    )
    for model in model_rows(look):
        models.add_row(
            model.model + (f" x{model.replicas}" if model.replicas > 1 else ""),
            *(str(model.running), str(model.waiting), f"{model.state_share:.0%}"),
            *map(_rate, (model.ok_s, model.failed_s, model.refused_s)),
            f"{_ms(model.first_p50_s)} {_ms(model.first_p95_s)}".strip(),
            _ms(model.total_p95_s),
            _work(model),
        )
    return Group(door, "", models)


def _work(row: ModelRow) -> str:
    def each() -> Iterable[str]:
        for unit, rate in row.work_s.items():
            if not rate:
                continue
            good = f" ({row.goodput_s[unit]:,.0f})" if unit in row.goodput_s else ""
            yield f"{unit} {rate:,.0f}{good}"

    return ", ".join(each())


def _rate(rate: float) -> str:
    return f"{rate:.1f}" if rate else "0"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.0f}"
