"""Commands that other packages bring: found by their entry points, loaded when they are used."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from headpond.cli.console import people

GROUP = "headpond.commands"
"""An entry point in this group is named after the command, and points at its function."""


class WithPlugins(TyperGroup):
    """The commands of this package, and those of installed ones, which replace none of them."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override] # typer hides its base's
        """Return the names of all commands, those of this package first."""
        own = super().list_commands(ctx)
        return [*own, *sorted(_declared().keys() - set(own))]

    def get_command(  # type: ignore[override] # typer hides its base's
        self, ctx: typer.Context, cmd_name: str
    ) -> TyperCommand | TyperGroup | None:
        """Return a command; that of another package is imported, None when it can't be."""
        own = super().get_command(ctx, cmd_name)
        if isinstance(own, TyperCommand | TyperGroup):
            return own
        entry = _declared().get(cmd_name)
        return None if entry is None else _loaded(entry)


def _declared() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _loaded(entry: EntryPoint) -> TyperCommand | TyperGroup | None:
    try:
        function = entry.load()
    except (ImportError, AttributeError) as error:
        # The others work all the same.
        people.print(f"[yellow]the command {entry.name} can't be loaded: {escape(str(error))}")
        return None
    app = typer.Typer(add_completion=False)
    app.command(entry.name)(function)
    command = get_command(app)
    return command if isinstance(command, TyperCommand | TyperGroup) else None
