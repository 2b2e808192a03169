"""`headpond dashboards` and `headpond alerts`: what the records say is worth watching."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.markup import escape

from headpond.cli.console import people, refusals
from headpond.dashboards import alerts as rules
from headpond.dashboards.pages import dashboards as pages
from headpond.registry import workloads

_HEAD = "# Made by `headpond alerts`.\n"


def dashboards(
    out: Annotated[Path, typer.Option(help="The folder to write into.", file_okay=False)],
) -> None:
    """Write Grafana dashboards: one of everything served, and one of each workload."""
    with refusals():
        written = pages(workloads())
    out.mkdir(parents=True, exist_ok=True)
    for name, page in written.items():
        path = out / f"{name}.json"
        path.write_text(json.dumps(page.document(), indent=2) + "\n", encoding="utf-8")
        people.print(f"Wrote {escape(str(path))}.")


def alerts(
    out: Annotated[
        Path | None, typer.Option(help="The file to write; else it is printed.", dir_okay=False)
    ] = None,
) -> None:
    """Print alert rules for Prometheus, or write them into a file."""
    with refusals():
        text = alert_rules()
    if out is None:
        typer.echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    people.print(f"Wrote {escape(str(out))}.")


def alert_rules() -> str:
    """Return the rules of every installed workload, as a file of Prometheus's."""
    document = rules.rules(workloads())
    return _HEAD + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
