"""`headpond key`: make, list and revoke the API keys of a file."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from headpond.api_key import ApiKey, hash_key, key_id, new_key
from headpond.cli.console import people, refusals, result_console
from headpond.cli.options import AsJson
from headpond.tenancy.key_list import KeyList

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke the API keys of a file.")

_DEFAULT_FILE = Path("keys.yaml")
_TIME = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

File = Annotated[Path, typer.Option("--file", help="The settings' `keys_file`.", dir_okay=False)]


@app.command()
def new(
    *,
    tenant: Annotated[str, typer.Option(help="Who is served when the key is shown.")],
    models: Annotated[
        list[str] | None, typer.Option(help="A glob of models it may ask for; repeatable.")
    ] = None,
    workloads: Annotated[
        list[str] | None, typer.Option(help="A glob of workloads it may use; repeatable.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="In 90d, 12h, 2w, or at 2027-01-31T00:00:00Z.")
    ] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="It may read /metrics.")] = False,
    admin: Annotated[
        bool, typer.Option("--admin", help="It may see every tenant's usage, and /metrics.")
    ] = False,
    file: File = _DEFAULT_FILE,
) -> None:
    """Add a key to a file by its hash, and print the key: it is kept nowhere."""
    key = new_key()
    entry: dict[str, object] = {"key_sha256": hash_key(key), "tenant": tenant}
    if models:
        entry["models"] = models
    if workloads:
        entry["workloads"] = workloads
    if expires is not None:
        entry["expires"] = _moment(expires)
    entry |= {"metrics": True} if metrics else {}
    entry |= {"admin": True} if admin else {}
    with refusals():
        KeyList(file).add(entry)
    people.print(f"key [bold]{key_id(hash_key(key))}[/bold] is in {escape(str(file))}; it is:")
    typer.echo(key)


@app.command("list")
def show(
    *,
    file: File = _DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """List the keys of a file: whose each is, what it opens and until when."""
    with refusals():
        keys = list(KeyList(file))
    if as_json:
        listed = [
            {"id": key_id(key.key_sha256), **key.model_dump(mode="json", exclude={"key_sha256"})}
            for key in keys
        ]
        typer.echo(json.dumps(listed))
        return
    table = Table("key", "tenant", "models", "workloads", "expires", "may see", box=None)
    for key in keys:
        seen = "all" if key.admin else "metrics" if key.metrics else ""
        columns = [key_id(key.key_sha256), key.tenant, ", ".join(key.models)]
        columns += [", ".join(key.workloads), _expiry(key), seen]
        table.add_row(*map(escape, columns))
    result_console().print(table)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="As `list` shows it.")], *, file: File = _DEFAULT_FILE
) -> None:
    """Take a key out of a file; servers refuse it within about a second."""
    with refusals():
        revoked = KeyList(file).remove(key)
    people.print(f"{key_id(revoked.key_sha256)} of {escape(revoked.tenant)} opens nothing more")


def _moment(text: str) -> datetime:
    span = _TIME.fullmatch(text)
    if span is not None:
        moment = datetime.now(UTC) + timedelta(**{_UNITS[span[2]]: int(span[1])})
        return moment.replace(microsecond=0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time", param_hint="--expires") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _expiry(key: ApiKey) -> str:
    if key.expires is None:
        return "never"
    text = key.expires.astimezone(UTC).isoformat(timespec="seconds")
    return f"{text} (over)" if key.expires <= datetime.now(UTC) else text
