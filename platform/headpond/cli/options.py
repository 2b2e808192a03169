"""What commands that ask a server share: where it is, who asks, which model, JSON for scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from headpond import Client
from headpond.cli.console import people, refusals
from headpond.client.config import ClientConfig
from headpond.client.errors import ConnectionFailed
from headpond.errors import AuthenticationFailed, HeadpondError

_COMPLETION_S = 2.0

BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url", "--url", envvar="HEADPOND_BASE_URL", help="The server; else localhost:8000."
    ),
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", envvar="HEADPOND_API_KEY", help="Sent as bearer token.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@contextmanager
def connected(base_url: str | None, api_key: str | None) -> Iterator[Client]:
    """Yield a client; what goes wrong becomes a line for people and exit code 1.

    Raises:
        typer.BadParameter: The URL is none.
    """
    try:
        client = Client(base_url=base_url, api_key=api_key)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--base-url") from None
    with refusals(), client:
        try:
            yield client
        except ConnectionFailed:
            url, _ = ClientConfig.locate(base_url, api_key)
            people.print(
                f"The server is {url}: start one with `headpond up`, or say where it is by "
                "--base-url or $HEADPOND_BASE_URL.",
                highlight=False,
            )
            raise
        except AuthenticationFailed:
            people.print("A key is given by --api-key or $HEADPOND_API_KEY.", highlight=False)
            raise


def completing(workload: str) -> Callable[[typer.Context, str], list[str]]:
    """Return what completes the names of a workload's models in a shell, by asking the server."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        url, key = ctx.params.get("base_url"), ctx.params.get("api_key")
        with suppress(HeadpondError, ValueError):
            client = Client(base_url=url, api_key=key, timeout_s=_COMPLETION_S, max_retries=0)
            with client:
                return [name for name in _names(client, workload) if name.startswith(incomplete)]
        return []

    return complete


def chosen(client: Client, workload: str, model: str | None) -> str:
    """Return a model's name: the one that was said, or the only one of a workload.

    Raises:
        typer.BadParameter: There is none, or more than one.
        HeadpondError: The server's own error, or one of `headpond.client.errors`.
    """
    if model is not None:
        return model
    names = _names(client, workload)
    if len(names) == 1:
        return names[0]
    reason = f"choose one of {', '.join(names)}" if names else f"no model is served for {workload}"
    raise typer.BadParameter(reason, param_hint="--model")


def text_of_input() -> str:
    """Return standard input.

    Raises:
        typer.BadParameter: It is no text.
    """
    try:
        text = sys.stdin.read()
        text.encode()  # where the locale lets other bytes pass, they do not come this far
    except UnicodeError:
        raise typer.BadParameter("standard input is no UTF-8 text") from None
    return text


def lines_of_input(what: str) -> list[str]:
    """Return the lines of standard input that are not empty.

    Raises:
        typer.BadParameter: There are none, or a person sits there.
    """
    lines = [] if sys.stdin.isatty() else [line.strip() for line in text_of_input().split("\n")]
    found = [line for line in lines if line]
    if not found:
        raise typer.BadParameter(f"give {what}, or one a line on standard input")
    return found


def _names(client: Client, workload: str) -> list[str]:
    return [each.id for each in client.models.list().data if each.workload == workload]
