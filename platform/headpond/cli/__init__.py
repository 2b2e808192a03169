"""The command line: `headpond`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from headpond.cli import batch, bench, bundle, down, up
from headpond.cli.console import tell_retries
from headpond.cli.plugins import WithPlugins

app = typer.Typer(
    cls=WithPlugins, no_args_is_help=True, help="Serve every kind of model behind one router."
)
app.add_typer(batch.app, name="batch")
app.add_typer(bundle.app, name="bundle")
app.command()(up.up)
app.command()(down.down)
app.command()(up.apply)
app.command()(up.demo)
app.command()(up.env)
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
