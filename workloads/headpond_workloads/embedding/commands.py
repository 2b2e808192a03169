"""`headpond embed`: the vectors of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from headpond.cli.options import (
    ApiKey,
    AsJson,
    BaseUrl,
    chosen,
    completing,
    connected,
    lines_of_input,
)

if TYPE_CHECKING:
    from headpond_workloads.embedding.schema import EmbeddingList

_WORKLOAD = "embedding"
_SHOWN_NUMBERS = 3
_MOST_COMPARED = 8


def embed(
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts; else one a line on standard input.")
    ] = None,
    *,
    model: Annotated[
        str | None, typer.Option(help="Its name.", autocompletion=completing(_WORKLOAD))
    ] = None,
    dimensions: Annotated[int | None, typer.Option(help="Numbers of each vector.", min=1)] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Print the vectors of texts, and how alike they are."""
    given = texts or lines_of_input("texts")
    with connected(base_url, api_key) as client:
        found = client.embeddings.create(
            model=chosen(client, _WORKLOAD, model), input=given, dimensions=dimensions
        )
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        _show(given, found)


def _show(texts: list[str], found: EmbeddingList) -> None:
    """Print a vector a row, and its cosine to each of the first ones."""
    vectors = [each.vector for each in found.data]
    compared = vectors[:_MOST_COMPARED] if len(vectors) > 1 else []
    heads = [f"~{number}" for number in range(1, len(compared) + 1)]
    table = Table("", "text", Column(f"{len(vectors[0])} numbers", no_wrap=True), box=None)
    for head in heads:
        table.add_column(head, justify="right")
    for number, (text, vector) in enumerate(zip(texts, vectors, strict=True), 1):
        numbers = " ".join(f"{value:+.3f}" for value in vector[:_SHOWN_NUMBERS])
        cosines = [f"{_cosine(vector, other):.2f}" for other in compared]
        table.add_row(str(number), escape(text), f"{numbers} …", *cosines)
    Console().print(table)


def _cosine(left: list[float], right: list[float]) -> float:
    lengths = _dot(left, left) * _dot(right, right)
    return _dot(left, right) / lengths**0.5 if lengths else 0.0


def _dot(left: list[float], right: list[float]) -> float:
    return sum(one * other for one, other in zip(left, right, strict=True))
