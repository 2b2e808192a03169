"""`headpond chat`: one answer, or a conversation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from headpond.cli.console import people
from headpond.cli.options import (
    ApiKey,
    AsJson,
    BaseUrl,
    chosen,
    completing,
    connected,
    text_of_input,
)
from headpond.errors import HeadpondError

if TYPE_CHECKING:
    from headpond import Client
    from headpond_workloads.generation.params import ChatParams, MessageParam

_WORKLOAD = "generation"


def chat(  # noqa: PLR0913 - an option each
    prompt: Annotated[
        str | None,
        typer.Argument(help="Say this and stop; else standard input, or a conversation."),
    ] = None,
    *,
    system: Annotated[str | None, typer.Option(help="What comes before all turns.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 for the likeliest.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Of each answer.", min=1)] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed, the same answer.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Its name.", autocompletion=completing(_WORKLOAD))
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    as_json: AsJson = False,
) -> None:
    """Talk to a model: one answer, or a conversation until Ctrl-D."""
    if prompt is None and not at_terminal():
        prompt = text_of_input()
    if prompt is not None and not prompt.strip():
        raise typer.BadParameter("give a prompt, or one on standard input", param_hint="prompt")
    if prompt is None and as_json:
        raise typer.BadParameter("a conversation is no JSON: give a prompt", param_hint="--json")
    with connected(base_url, api_key) as client:
        params: ChatParams = {
            "model": chosen(client, _WORKLOAD, model),
            "messages": [] if system is None else [{"role": "system", "content": system}],
            "temperature": temperature,
            "max_tokens": max_tokens,
            "seed": seed,
        }
        if prompt is None:
            _converse(client, params)
            return
        params["messages"] = [*params["messages"], {"role": "user", "content": prompt}]
        if as_json:
            typer.echo(client.chat.completions.create(**params).model_dump_json())
            return
        _say(_texts(client, params))


def at_terminal() -> bool:
    """Say whether a person types."""
    return sys.stdin.isatty()


def _converse(client: Client, params: ChatParams) -> None:
    """Answer one line after the other; Ctrl-C stops an answer, Ctrl-D ends it all."""
    people.print(f"[dim]{escape(params['model'])}: Ctrl-C stops an answer, Ctrl-D ends.[/dim]")
    while (line := _line()) is not None:
        if not line:
            continue
        turn: MessageParam = {"role": "user", "content": line}
        before = params["messages"]
        params["messages"] = [*before, turn]
        try:
            said = _say(_texts(client, params))
        except HeadpondError as error:
            people.print(f"[red]{escape(error.message)}[/red]")
            params["messages"] = before
        else:
            params["messages"] = [*before, turn, {"role": "assistant", "content": said}]


def _line() -> str | None:
    try:
        return people.input("[bold]> [/bold]").strip()
    except (EOFError, KeyboardInterrupt):
        people.print()
        return None


def _texts(client: Client, params: ChatParams) -> Iterator[str]:
    """Yield an answer as it comes; what the model marks as its reasoning goes to people."""
    with client.chat.completions.create(stream=True, **params) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                if choice.delta.reasoning_content:
                    people.print(f"[dim]{escape(choice.delta.reasoning_content)}[/dim]", end="")
                if choice.delta.content:
                    yield choice.delta.content


def _say(texts: Iterator[str]) -> str:
    """Print a text as it comes, up to Ctrl-C, which also stops the server; return it."""
    said = []
    try:
        for text in texts:
            said.append(text)
            typer.echo(text, nl=False)
    except KeyboardInterrupt:
        people.print("[dim] (stopped)[/dim]", end="", highlight=False)
    typer.echo()
    return "".join(said)
