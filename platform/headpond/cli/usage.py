"""`headpond usage`: what calls came to, as a table, CSV or JSON."""

from __future__ import annotations

import csv
import sys
from datetime import UTC, datetime
from typing import Annotated, cast

import typer
from rich.markup import escape
from rich.table import Column, Table

from headpond.cli.console import result_console
from headpond.cli.options import ApiKey, AsJson, BaseUrl, connected
from headpond.usage_wire import USAGE_GROUPS, UsageGroup, UsageReport, UsageRow

Time = Annotated[str | None, typer.Option(help="Unix seconds, or like 2026-12-01.")]
Groups = Annotated[
    str, typer.Option(help=f"What is told apart, by commas: some of {', '.join(USAGE_GROUPS)}.")
]


def usage(
    *,
    start: Time = None,
    end: Time = None,
    group_by: Groups = "workload,model",
    tenant: Annotated[
        str | None, typer.Option(help="Whose; all that the key may see, unless given.")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for spreadsheets.")] = False,
    as_json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Tell what calls came to, by whole hours; the last 30 days, unless said otherwise."""
    if as_csv and as_json:
        raise typer.BadParameter("give --csv or --json, not both")
    groups = cast("list[UsageGroup]", [name for name in group_by.split(",") if name])
    with connected(base_url, api_key) as client:
        report = client.usage.retrieve(start=start, end=end, group_by=groups, tenant=tenant)
    if as_json:
        typer.echo(report.model_dump_json())
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(_columns(report))
        writer.writerows(_cells(report, row) for row in report.data)
    else:
        result_console().print(_table(report))


def _columns(report: UsageReport) -> list[str]:
    return [*report.group_by, "unit", "amount"]


def _cells(report: UsageReport, row: UsageRow) -> list[str]:
    groups = [_cell(row, group) for group in report.group_by]
    return [*groups, row.unit, str(row.amount)]


def _cell(row: UsageRow, group: UsageGroup) -> str:
    if group in ("hour", "day"):
        moment = datetime.fromtimestamp(row.start or 0, UTC)
        return moment.strftime("%Y-%m-%d" if group == "day" else "%Y-%m-%dT%H:%MZ")
    return str(getattr(row, group))


def _table(report: UsageReport) -> Table:
    *names, amount = _columns(report)
    table = Table(*names, Column(amount, justify="right"), box=None)
    for row in report.data:
        table.add_row(*map(escape, _cells(report, row)))
    return table
