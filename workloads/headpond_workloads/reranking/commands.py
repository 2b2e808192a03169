"""`headpond rerank`: documents by how well they answer a query."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headpond.cli.options import (
    ApiKey,
    AsJson,
    BaseUrl,
    chosen,
    completing,
    connected,
    lines_of_input,
)

_WORKLOAD = "reranking"


def rerank(
    query: Annotated[str, typer.Argument(help="What is asked.")],
    documents: Annotated[
        list[str] | None, typer.Argument(help="Texts; else one a line on standard input.")
    ] = None,
    *,
    top_n: Annotated[int | None, typer.Option(help="The most that are shown.", min=1)] = None,
    model: Annotated[
        str | None, typer.Option(help="Its name.", autocompletion=completing(_WORKLOAD))
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Print documents, the one that answers a query best first."""
    given = documents or lines_of_input("documents")
    with connected(base_url, api_key) as client:
        name = chosen(client, _WORKLOAD, model)
        ranking = client.rerank(model=name, query=query, documents=given, top_n=top_n)
    if as_json:
        typer.echo(ranking.model_dump_json())
        return
    table = Table("score", "#", "document", box=None)
    for result in ranking.results:
        number = str(result.index + 1)
        table.add_row(f"{result.relevance_score:.4f}", number, escape(given[result.index]))
    Console().print(table)
