"""`headpond classify`: what images show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headpond.cli.options import ApiKey, AsJson, BaseUrl, chosen, completing, connected

if TYPE_CHECKING:
    from headpond_workloads.vision.schema import ClassificationList

_WORKLOAD = "vision"
_BAR = 20


def classify(
    images: Annotated[list[Path], typer.Argument(help="Files.", exists=True, dir_okay=False)],
    *,
    top_k: Annotated[int, typer.Option(help="The most classes of each.", min=1)] = 5,
    model: Annotated[
        str | None, typer.Option(help="Its name.", autocompletion=completing(_WORKLOAD))
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Print what images show, the likeliest class first; exit code 3 when one can't be read."""
    with connected(base_url, api_key) as client:
        found = client.classifications.create(
            model=chosen(client, _WORKLOAD, model), image=images, top_k=top_k
        )
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        _show(images, found)
    if any(each.error is not None for each in found.data):
        raise typer.Exit(3)


def _show(images: list[Path], found: ClassificationList) -> None:
    table = Table("image", "class", "score", "", box=None)
    for path, each in zip(images, found.data, strict=True):
        if each.error is not None:
            table.add_row(escape(path.name), f"[red]{escape(each.error.message)}[/red]")
        for place, one in enumerate(each.classes or ()):
            name = escape(path.name) if place == 0 else ""
            bar = "█" * round(one.score * _BAR)
            table.add_row(name, escape(one.label), f"{one.score:.4f}", bar)
    Console().print(table)
