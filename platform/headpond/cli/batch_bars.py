"""Bars for people: an upload, and the records of a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TransferSpeedColumn,
)

from headpond.cli.console import people
from headpond.jobs_wire import Batch

_MOST_ERRORS = 10


@contextmanager
def upload_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show how much of a file was sent; yields who is to be told."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(),
               TransferSpeedColumn())  # fmt: skip
    with Progress(*columns, console=people, transient=True, disable=not people.is_terminal) as bars:
        task = bars.add_task(f"upload {escape(name)}", total=None)
        yield lambda sent, total: bars.update(task, completed=sent, total=total)


@contextmanager
def records_bar() -> Iterator[Callable[[Batch], None]]:
    """Show how far a batch is; yields who is to be told of it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("{task.fields[left]}"))  # fmt: skip
    with Progress(*columns, console=people, transient=True, disable=not people.is_terminal) as bars:
        task = bars.add_task("batch", total=None, left="")

        def told(batch: Batch) -> None:
            counts = batch.request_counts
            bars.update(
                task,
                description=batch.status,
                total=counts.total if counts is not None and counts.total else None,
                completed=0 if counts is None else counts.completed + counts.failed,
                left=_left(batch),
            )

        yield told


def show_batch(batch: Batch) -> None:
    """Say in a line what became of a batch, and what is wrong with its input."""
    counts = batch.request_counts
    done = "" if counts is None else f": {counts.completed} answered, {counts.failed} failed"
    total = "" if counts is None else f" of {counts.total}"
    people.print(f"{batch.status}{done}{total}  {batch.bundle or ''}", highlight=False)
    if batch.manifest_url is not None:
        people.print(f"  {escape(batch.manifest_url)}", highlight=False, soft_wrap=True)
    if batch.waits_for is not None and not batch.over:
        people.print(f"  waits: {escape(batch.waits_for)}")
    errors = () if batch.errors is None else batch.errors.data
    for error in errors[:_MOST_ERRORS]:
        place = "" if error.line is None else f"line {error.line}: "
        people.print(f"  [red]{place}{error.code}[/red] {escape(error.message or '')}")
    if len(errors) > _MOST_ERRORS:
        people.print(f"  and {len(errors) - _MOST_ERRORS} more")


def _left(batch: Batch) -> str:
    """Return when it may be done, against when it has to be."""
    progress = batch.progress
    if batch.waits_for is not None:
        return f"waits: {escape(batch.waits_for)}"
    if progress is None or progress.estimated_completion_at is None:
        return ""
    left_s = max(0, progress.estimated_completion_at - int(time.time()))
    late = "" if progress.on_time is not False else ", [red]after its deadline[/red]"
    return f"about {left_s // 3600}:{left_s // 60 % 60:02}:{left_s % 60:02} left{late}"
