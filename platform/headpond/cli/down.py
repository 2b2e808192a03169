"""`headpond down`: stop what `headpond up` runs on this machine.

Exit codes: 0 it is stopped, 1 it does not stop in time, 2 none runs, or more than one.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import psutil
import typer

from headpond.cli.console import people
from headpond.cli.running import Running, running


def down(
    port: Annotated[int | None, typer.Option(help="Where it listens; else the only one.")] = None,
    timeout_s: Annotated[float, typer.Option(help="How long to wait for its end.", min=0.0)] = 60.0,
) -> None:
    """Stop the platform that `headpond up` or `demo` runs on this machine, and wait for its end."""
    note = _chosen(running(), port)
    process = note.process()
    if process is not None:
        process.terminate()
        try:
            process.wait(timeout_s)
        except psutil.TimeoutExpired:
            people.print(f"{note.base_url} (process {note.pid}) does not stop in time.")
            raise typer.Exit(1) from None
    people.print(f"Stopped {note.base_url}.", highlight=False)


def _chosen(notes: list[Running], port: int | None) -> Running:
    """Return the platform that is meant.

    Raises:
        typer.BadParameter: None runs there, or more than one.
    """
    found = [each for each in notes if port in (None, urlsplit(each.base_url).port)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(each.base_url for each in notes)
    if not notes:
        raise typer.BadParameter("no platform of yours runs on this machine")
    reason = f"none listens there: {listed}" if not found else f"more than one runs: {listed}"
    raise typer.BadParameter(reason, param_hint="--port")
