"""`headpond batch`: submit, watch, cancel and list batches, and get their results.

Exit codes: 0 all is well, 1 the server refused or the batch did not complete, 2 wrong usage,
3 it is not over yet, or some of its records failed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.markup import escape
from rich.table import Column, Table

from headpond import Client
from headpond.cli.batch_bars import records_bar, show_batch, upload_bar
from headpond.cli.console import people, result_console
from headpond.cli.options import ApiKey, AsJson, BaseUrl, connected
from headpond.client.results import result_files
from headpond.errors import DeadlineExceeded
from headpond.jobs_wire import Batch, BatchFormat, BatchInput, BatchList, BatchOutput

app = typer.Typer(no_args_is_help=True, help="Submit, watch, cancel and list batches.")

_FAILED, _OPEN = 1, 3
_WIDE_COLUMNS = 120
BatchId = Annotated[str, typer.Argument(help="The batch, as `submit` printed it.")]
Timeout = Annotated[float | None, typer.Option(help="Seconds to wait at most.", min=0.0)]


@app.command()
def submit(  # noqa: PLR0913 - an option each
    file: Annotated[
        Path | None, typer.Argument(help="One request a line.", exists=True, dir_okay=False)
    ] = None,
    *,
    endpoint: Annotated[str, typer.Option(help="The route that every line's url names.")],
    input_url: Annotated[str | None, typer.Option(help="A prefix, instead of a file.")] = None,
    output_url: Annotated[
        str | None, typer.Option(help="With --input-url: an empty prefix for the results.")
    ] = None,
    input_format: Annotated[BatchFormat, typer.Option(help="Of the prefix.")] = "jsonl",
    output_format: Annotated[BatchFormat, typer.Option(help="Of the results.")] = "jsonl",
    id_column: Annotated[str, typer.Option(help="Of Parquet: has custom_id.")] = "custom_id",
    column: Annotated[
        list[str] | None, typer.Option(help="Of Parquet: FIELD=COLUMN; repeatable.")
    ] = None,
    body: Annotated[
        str | None, typer.Option(help="Of Parquet: JSON, fields that every row has besides.")
    ] = None,
    window: Annotated[str, typer.Option(help="Until the deadline: 24h, 90m.")] = "24h",
    metadata: Annotated[list[str] | None, typer.Option(help="NAME=VALUE; repeatable.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key and file make no second batch.")
    ] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Run the good lines of a file with bad ones.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Watch it until it is over.")] = False,
    as_json: AsJson = False,
) -> None:
    """Begin a batch over a file that is uploaded, or over a prefix; prints its identifier."""
    pairs = dict(_pair(text, "--metadata") for text in metadata or [])
    if (file is None) == (input_url is None) or (input_url is None) != (output_url is None):
        raise typer.BadParameter("give a file, or --input-url and --output-url")
    source = target = None
    if input_url is not None and output_url is not None:
        source = _source(input_url, input_format, id_column, column or [], body)
        target = BatchOutput(url=output_url, format=output_format)
    if skip_invalid:
        pairs["on_invalid_line"] = "skip"
    with connected(base_url, api_key) as client:
        uploaded = None if file is None else _uploaded(client, file)
        batch = client.batches.create(
            input_file_id=uploaded,
            input_url=source,
            output_url=target,
            endpoint=endpoint,
            completion_window=window,
            metadata=pairs or None,
            idempotency_key=idempotency_key,
        )
        if uploaded is not None and batch.input_file_id != uploaded:
            # An earlier submission has made the batch: nothing needs this upload.
            client.files.delete(uploaded)
        if wait:
            batch = _watched(client, batch.id, None)
    _print(batch, as_json=as_json)
    if wait:
        raise typer.Exit(_code(batch))


@app.command()
def watch(
    batch_id: BatchId,
    timeout_s: Timeout = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show how far a batch is until it is over."""
    with connected(base_url, api_key) as client:
        batch = _watched(client, batch_id, timeout_s)
    _print(batch, as_json=as_json)
    raise typer.Exit(_code(batch))


@app.command()
def cancel(
    batch_id: BatchId, base_url: BaseUrl = None, api_key: ApiKey = None, *, as_json: AsJson = False
) -> None:
    """Stop a batch; what is done is kept."""
    with connected(base_url, api_key) as client:
        batch = client.batches.cancel(batch_id)
    _print(batch, as_json=as_json)


@app.command()
def results(
    batch_id: BatchId,
    output: Annotated[Path | None, typer.Option(help="A file; standard output if absent.")] = None,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Write every result of a batch that is over, one JSON a line, those that failed last."""
    with connected(base_url, api_key) as client:
        batch = client.batches.retrieve(batch_id)
        if not batch.over:
            people.print(f"{batch.id} is {batch.status}; see `headpond batch watch {batch.id}`.")
            raise typer.Exit(_OPEN)
        with _writing(output) as target:
            for file_id in result_files(batch):
                for block in client.files.content(file_id):
                    target.write(block)
    raise typer.Exit(_code(batch))


@app.command(name="list")
def list_batches(
    limit: Annotated[int, typer.Option(help="The most that are listed.", min=1, max=100)] = 20,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the batches, newest first; with endpoints and models where there is room."""
    with connected(base_url, api_key) as client:
        listed = client.batches.list(limit=limit)
    if as_json:
        found = BatchList(data=listed.data, last_id=listed.last_id, has_more=listed.has_more)
        typer.echo(found.model_dump_json())
        return
    console = result_console()
    wide = console.width >= _WIDE_COLUMNS
    whole = [Column(head, no_wrap=True) for head in ("batch", "status", "records", "made (UTC)")]
    table = Table(*whole, *(("endpoint", "model") if wide else ()), box=None)
    for batch in listed.data:
        counts = batch.request_counts
        done = "" if counts is None else f"{counts.completed + counts.failed}/{counts.total}"
        made = f"{datetime.fromtimestamp(batch.created_at, UTC):%m-%d %H:%M}"
        asked = (batch.endpoint, escape(batch.model or ""))
        table.add_row(batch.id, batch.status, done, made, *(asked if wide else ()))
    console.print(table)


def _uploaded(client: Client, file: Path) -> str:
    with upload_bar(file.name) as told:
        return client.files.create(file, on_progress=told).id


def _source(
    url: str, form: BatchFormat, id_column: str, columns: list[str], body: str | None
) -> BatchInput:
    """Return what is to be read; only Parquet needs more than its place."""
    if form == "jsonl" and not columns and body is None:
        return BatchInput(url=url)
    pairs = dict(_pair(text, "--column") for text in columns)
    try:
        fields = None if body is None else json.loads(body)
        return BatchInput(url=url, format=form, id_column=id_column, columns=pairs, body=fields)
    except ValueError:
        raise typer.BadParameter("must be a JSON object", param_hint="--body") from None


def _watched(client: Client, batch_id: str, timeout_s: float | None) -> Batch:
    """Show a bar until a batch is over, or as it is when time is up."""
    with records_bar() as told:
        try:
            return client.batches.wait(batch_id, timeout_s=timeout_s, on_progress=told)
        except DeadlineExceeded:
            return client.batches.retrieve(batch_id)


def _print(batch: Batch, *, as_json: bool) -> None:
    if as_json:
        typer.echo(batch.model_dump_json())
        return
    show_batch(batch)
    typer.echo(batch.id)


def _code(batch: Batch) -> int:
    if not batch.over:
        return _OPEN
    if batch.status != "completed":
        return _FAILED
    return _OPEN if batch.request_counts is not None and batch.request_counts.failed else 0


@contextmanager
def _writing(path: Path | None) -> Iterator[BinaryIO]:
    """Open a file that appears when it is whole, or standard output.

    Raises:
        typer.BadParameter: The file can't be written.
    """
    if path is None:
        with nullcontext(sys.stdout.buffer) as target:
            yield target
        return
    if path.is_dir():
        raise _unwritable(path, "it is a folder")
    part = path.with_name(f"{path.name}.part")
    try:
        target = part.open("wb")
    except OSError as error:
        raise _unwritable(path, error.strerror or type(error).__name__) from None
    try:
        with target:
            yield target
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _unwritable(path: Path, reason: str) -> typer.BadParameter:
    return typer.BadParameter(f"{path} can't be written: {reason}", param_hint="--output")


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} must read NAME=VALUE", param_hint=option)
    return name, value
