"""What the commands say to people: on standard error, so that scripts can read the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape
from stamina.instrumentation import RetryDetails, set_on_retry_hooks

from headpond.errors import HeadpondError

people = Console(stderr=True)
_UNBROKEN_COLUMNS = 1000


def result_console() -> Console:
    """Return where results go: as wide as a terminal, and with whole lines into a pipe or a file."""
    whole = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=_UNBROKEN_COLUMNS if whole else None)


def tell_retries() -> None:
    """Tell of each call that is tried again."""
    set_on_retry_hooks([_told])


def _told(details: RetryDetails) -> None:
    reason = escape(str(details.caused_by))
    people.print(f"[dim]retry {details.retry_num} in {details.wait_for:.1f} s: {reason}[/dim]")


@contextmanager
def refusals() -> Iterator[None]:
    """Turn an error of ours, or a package that is missing, into a line for people and exit code 1."""
    try:
        yield
    except HeadpondError as error:
        leads = error.param and error.message.startswith(f"{error.param}:")
        field = f" [dim]({escape(error.param)})[/dim]" if error.param and not leads else ""
        people.print(f"[red]{escape(error.message)}[/red]{field}")
        if error.__cause__ is not None:
            people.print(f"  because: {escape(str(error.__cause__))}")
        raise typer.Exit(1) from error
    except ModuleNotFoundError as error:
        people.print(f"[red]{escape(str(error))}[/red]")
        people.print(escape("pip install 'headpond[serve]' brings all that a server needs"))
        raise typer.Exit(1) from error
