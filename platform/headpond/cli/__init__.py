"""The command line: `headpond`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from headpond.cli import (
    alias,
    batch,
    bench,
    bundle,
    dashboards,
    down,
    key,
    plan,
    status,
    top,
    up,
    usage,
)
from headpond.cli.console import tell_retries
from headpond.cli.plugins import WithPlugins

app = typer.Typer(
    cls=WithPlugins, no_args_is_help=True, help="Serve every kind of model behind one router."
)
app.add_typer(alias.app, name="alias")
app.add_typer(batch.app, name="batch")
app.add_typer(bundle.app, name="bundle")
app.add_typer(key.app, name="key")
app.command()(up.up)
app.command()(down.down)
app.command()(up.apply)
app.command()(up.demo)
app.command()(up.env)
app.command()(usage.usage)
app.command()(plan.plan)
app.command()(status.status)
app.command()(top.top)
app.command()(dashboards.dashboards)
app.command()(dashboards.alerts)
app.command()(bench.bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("headpond"))
        raise typer.Exit


@app.callback()
def main(
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print it and exit."
        ),
    ] = False,
) -> None:
    """Serve every kind of model behind one router."""
    tell_retries()
