"""`headpond status`: what is served, by which bundles, and what is not ready and why.

Exit codes: 0 all is ready, 1 something is not, or the server does not answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import typer
from rich.markup import escape
from rich.table import Table

from headpond.cli.console import people, refusals, result_console
from headpond.cli.options import ApiKey, AsJson, BaseUrl
from headpond.cli.server import Server, observed
from headpond.errors import HeadpondError
from headpond.models_wire import Model
from headpond.telemetry.scrape import Scrape


@dataclass(frozen=True, kw_only=True)
class Served:
    """One alias.

    Attributes:
        alias: The name that callers use.
        workload: What it does; None while no replica has ever answered.
        bundles: The versions behind it.
        replicas: How many run these bundles; None where the metrics can't be seen.
        not_ready: Why some of its traffic finds nobody; None when it is ready.
    """

    alias: str
    workload: str | None
    bundles: tuple[str, ...]
    replicas: int | None
    not_ready: str | None


def status(
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show every alias: its bundles, how many replicas run, and whether it is ready."""
    with refusals(), observed(base_url, api_key) as server:
        models, reasons = server.models(), server.not_ready()
        served = served_by(models, reasons, _scraped(server))
    if as_json:
        typer.echo(json.dumps({"models": [asdict(each) for each in served]}))
    else:
        _show(served)
    raise typer.Exit(1 if reasons else 0)


def _scraped(server: Server) -> Scrape | None:
    """Return the metrics, or None where the key does not open them."""
    try:
        return server.scrape()
    except HeadpondError as error:
        people.print(f"[dim]No count of replicas: {escape(error.message)}[/dim]")
        return None


def served_by(
    models: Sequence[Model], reasons: Mapping[str, str], scrape: Scrape | None
) -> list[Served]:
    """Return every alias that is served or should be.

    Args:
        models: Those that have answered.
        reasons: Those that are not ready, with the reasons; `*` stands for all.
        scrape: The metrics, if they can be seen.
    """
    for_all = reasons.get("*")
    rows = [
        Served(
            alias=model.id,
            workload=model.workload,
            bundles=model.bundles,
            replicas=None if scrape is None else _replicas(scrape, model.bundles),
            not_ready=reasons.get(model.id, for_all),
        )
        for model in models
    ]
    known = {model.id for model in models}
    rows += [
        Served(alias=name, workload=None, bundles=(), replicas=None, not_ready=reason)
        for name, reason in reasons.items()
        if name not in known
    ]
    return sorted(rows, key=lambda row: row.alias)


def _replicas(scrape: Scrape, bundles: Sequence[str]) -> int:
    return sum(
        len(scrape.values("headpond_open", "replica", bundle=bundle))
        or bool(scrape.values("headpond_open", "bundle", bundle=bundle))
        for bundle in bundles
    )


def _show(served: Sequence[Served]) -> None:
    table = Table("alias", "workload", "replicas", "ready", "bundles", box=None)
    for row in served:
        ready = "[green]yes[/green]" if row.not_ready is None else f"[red]{escape(row.not_ready)}"
        table.add_row(
            escape(row.alias),
            row.workload or "",
            "" if row.replicas is None else str(row.replicas),
            ready,
            "\n".join(row.bundles),
        )
    result_console().print(table if served else "Nothing is served.")
