"""The two prefixes of a job that reads no uploaded file: opened below the roots, and checked."""

from __future__ import annotations

import asyncio

from headpond.errors import InvalidRequest
from headpond.jobs.gathering import MOST_OBJECTS
from headpond.jobs.job import Source, Target
from headpond.jobs.objects import Entry, Objects
from headpond.jobs.parquet import require_parquet
from headpond.jobs.roots import Roots, require_apart, require_no_links

INPUT_URL, OUTPUT_URL = "input.url", "output.url"

_PARQUET = "parquet"


async def open_source(
    roots: Roots, source: Source, tenant: str
) -> tuple[Objects, tuple[Entry, ...]]:
    """Return a job's input: where it is, and its objects, sorted by name.

    Objects whose name begins with `_` or `.` are no input: markers of those that write.

    Raises:
        InvalidRequest: It may not be read, has no objects or too many, or a link leads out.
        ObjectsUnavailable: The store failed for too long.
    """
    folder = roots.open(source.url, tenant, param=INPUT_URL)
    if source.format == _PARQUET:
        require_parquet(param="input.format")
    entries = tuple(
        entry
        for entry in await folder.entries()
        if not entry.key.rpartition("/")[2].startswith(("_", "."))
    )
    if not entries:
        raise InvalidRequest("There are no objects below it.", param=INPUT_URL)
    if len(entries) > MOST_OBJECTS:
        raise InvalidRequest(f"More than {MOST_OBJECTS} objects are below it.", param=INPUT_URL)
    await asyncio.to_thread(require_no_links, source.url, entries, param=INPUT_URL)
    return folder, entries


def open_target(roots: Roots, target: Target, tenant: str) -> Objects:
    """Return where a job's results go.

    Raises:
        InvalidRequest: Nothing may be written there, or not in that format.
    """
    folder = roots.open(target.url, tenant, param=OUTPUT_URL)
    if target.format == _PARQUET:
        require_parquet(param="output.format")
    return folder


async def require_new(roots: Roots, source: Source, target: Target, tenant: str) -> None:
    """Check that a job's output has a place of its own, with nothing in it.

    Raises:
        InvalidRequest: It has not.
        ObjectsUnavailable: The store failed for too long.
    """
    require_apart(source.url, target.url, param=OUTPUT_URL)
    if await open_target(roots, target, tenant).entries():
        text = "Objects are below it already: results need a prefix of their own."
        raise InvalidRequest(text, param=OUTPUT_URL)
