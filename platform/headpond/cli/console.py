"""What the commands say to people: on standard error, so that scripts can read the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import typer
from rich.console import Console
from rich.markup import escape

from headpond.errors import HeadpondError

people = Console(stderr=True)


def log_to_people() -> None:
    """Send log lines, of calls that are tried again, to standard error."""
    structlog.configure(logger_factory=_logger)


def _logger(*_: object) -> structlog.PrintLogger:
    # Made for each line: standard error may be another one by then.
    return structlog.PrintLogger(sys.stderr)


@contextmanager
def refusals() -> Iterator[None]:
    """Turn an error of ours, or a package that is missing, into a line for people and exit code 1."""
    try:
        yield
    except HeadpondError as error:
        field = f" [dim]({escape(error.param)})[/dim]" if error.param else ""
        people.print(f"[red]{escape(error.message)}[/red]{field}")
        if error.__cause__ is not None:
            people.print(f"  because: {escape(str(error.__cause__))}")
        raise typer.Exit(1) from error
    except ModuleNotFoundError as error:
        people.print(f"[red]{escape(str(error))}[/red]")
        people.print(escape("pip install 'headpond[serve]' brings all that a server needs"))
        raise typer.Exit(1) from error
