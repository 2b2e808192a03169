"""Reading a job's input: every line is checked, and the records are cut into shards.

The input is never whole in memory; what is kept of a line is where it lies. Records of
like size go into one shard, over the whole file, so that what is batched together is alike.
"""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import orjson

from headpond.errors import InvalidRequest, ModelNotFound
from headpond.jobs.claim import Claim, Part, ShardResult, Span
from headpond.jobs.errors import InputFileLost, ObjectLost
from headpond.jobs.gathering import Lineage, gather
from headpond.jobs.input_line import MOST_LINE_BYTES, InputLine
from headpond.jobs.job import Job, LineError
from headpond.jobs.objects import Objects
from headpond.jobs.parquet import UnreadableObject
from headpond.jobs.prefixes import open_source
from headpond.jobs.records import unreadable
from headpond.jobs.roots import Roots

MOST_RECORDS = 50_000
"""Lines that are no records count too: each is told of."""
MOST_PREFIX_RECORDS = 1_000_000
MOST_ERRORS = 100
"""So many bad lines are listed; of the others it is said how many they are."""

SHARD_RECORDS = 1024
SHARD_BYTES = 4 * 2**20
"""A shard is read whole; how long one runs is bounded by time, not by this."""

_WRITES = 4
"""So many shards are written at once; each may be held in memory."""

SKIP_INVALID = "skip"
"""The value of `metadata.on_invalid_line` by which bad lines are passed over."""


@dataclass
class Scan:
    """What a pass over the input has found.

    Attributes:
        offsets: Where each record begins.
        lengths: How long it is, without its newline.
        bad: How many lines are no records.
        errors: What is wrong with the first of them, in order.
        fatal: Why the file can't be run at all.
    """

    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    bad: int = 0
    errors: list[LineError] = field(default_factory=list)
    fatal: LineError | None = None

    def refuse(self, problem: LineError) -> None:
        """Count a bad line, and keep what is wrong with it while there is room."""
        self.bad += 1
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(problem)

    def listed(self) -> Sequence[LineError]:
        """Return why the file can't be run, in a list of bounded length."""
        if self.fatal is not None:
            return [self.fatal]
        if self.bad == len(self.errors):
            return self.errors
        more = LineError("more_errors", f"{self.bad - len(self.errors)} more lines are wrong.")
        return [*self.errors, more]

    def shards(self) -> Iterator[list[int]]:
        """Cut the records into shards, the longest first; yields their positions here."""
        order = sorted(range(len(self.lengths)), key=lambda each: -self.lengths[each])
        shard: list[int] = []
        size = 0
        for each in order:
            if shard and (len(shard) == SHARD_RECORDS or size + self.lengths[each] > SHARD_BYTES):
                yield shard
                shard, size = [], 0
            shard.append(each)
            size += self.lengths[each]
        if shard:
            yield shard


@dataclass(frozen=True, slots=True)
class Input:
    """An input that was read: its shards, the lines passed over, or why it can't be run.

    `lineage` is the list of its objects, where it is not one uploaded file.
    """

    spans: Sequence[Span] = ()
    bad: ShardResult | None = None
    errors: Sequence[LineError] = ()
    lineage: Part | None = None


async def read_input(claim: Claim, objects: Objects, roots: Roots) -> Input:
    """Check the input of a job, and write its shards to the object store.

    Raises:
        ObjectsUnavailable: The object store failed for too long.
        ObjectLost: The input is gone, or is not what was stored.
    """
    skip = claim.job.metadata.get("on_invalid_line") == SKIP_INVALID
    with TemporaryDirectory(prefix="headpond-batch-") as folder:
        path = Path(folder, "input.jsonl")
        try:
            lineage = await _fetch(claim, objects, roots, path)
        except (InvalidRequest, UnreadableObject) as error:
            return Input(
                errors=[
                    LineError(error.code or "invalid_request", error.message, param=error.param)
                ]
            )
        lines = Path(folder, "invalid.jsonl")
        scan = await asyncio.to_thread(scan_lines, path, claim.job, lineage, lines)
        if scan.fatal is not None or (scan.bad and not skip):
            return Input(errors=scan.listed())
        prefix = f"jobs/{claim.job.id}/{claim.fence}"
        spans = await _write_shards(objects, path, scan, prefix)
        bad = await _write_bad(objects, lines, scan.bad, f"{prefix}/invalid.jsonl")
    listed = None
    if lineage.objects:
        key = f"{prefix}/input.json"
        stored = await objects.put(key, orjson.dumps(lineage.document()))
        listed = Part(key=key, bytes=stored.bytes, sha256=stored.sha256)
    return Input(spans=spans, bad=bad, lineage=listed)


async def _fetch(claim: Claim, objects: Objects, roots: Roots, path: Path) -> Lineage:
    """Copy a job's input into one file of lines on this machine, and say what it was."""
    job = claim.job
    if job.source is not None:
        folder, entries = await open_source(roots, job.source, job.tenant)
        return await gather(folder, entries, job.source, job.endpoint, path)
    try:
        await objects.download(claim.job_input_key or "", path)
    except ObjectLost:
        raise InputFileLost from None
    if await asyncio.to_thread(_digest, path) != claim.job_input_sha256:
        raise ObjectLost("The object store gave other content than was stored.")
    return Lineage()


def scan_lines(path: Path, job: Job, lineage: Lineage, bad: Path) -> Scan:
    """Check every line of an input against what its job says.

    Args:
        path: The input.
        job: The job.
        lineage: The objects that it was gathered from.
        bad: Gets the error lines of what are no records.
    """
    scan, seen = Scan(), dict[str, int]()
    most = MOST_PREFIX_RECORDS if lineage.objects else MOST_RECORDS
    with path.open("rb") as file, bad.open("wb") as refused:
        for number, (offset, content) in enumerate(_lines(file), start=1):
            if not content.strip():
                continue
            if len(scan.offsets) + scan.bad == most:
                text = f"The input has more than {most} records."
                scan.fatal = LineError("too_many_tasks", text)
                return scan
            line = InputLine.of(number, content, lineage)
            problem = line.problem(job, seen)
            if problem is None:
                scan.offsets.append(offset)
                scan.lengths.append(len(content.rstrip(b"\r\n")))
            else:
                scan.refuse(problem)
                refused.write(unreadable(problem, line.custom_id).line)
    if not scan.offsets and not scan.bad:
        scan.fatal = LineError("empty_file", "The input has no records.")
    elif scan.offsets and job.bundle is None:
        scan.fatal = _no_model(job)
    return scan


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield where each line begins, and the line; of one that is too long, its beginning."""
    offset = 0
    while line := file.readline(MOST_LINE_BYTES):
        yield offset, line
        offset += len(line)
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(MOST_LINE_BYTES)):
            offset += len(rest)


def _no_model(job: Job) -> LineError:
    if job.model is None:
        text = "No line names a model, and several are served."
        return LineError("missing_required_parameter", text, param="body.model")
    error = ModelNotFound.named(job.model, f"does not exist, or does not serve {job.endpoint}")
    return LineError("model_not_found", error.message, param="body.model")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _write_shards(objects: Objects, path: Path, scan: Scan, prefix: str) -> list[Span]:
    """Write all shards, some at once: a worker that is killed meanwhile has to begin anew."""
    free = asyncio.Semaphore(_WRITES)

    async def write(number: int, shard: Sequence[int]) -> Span:
        async with free:
            return await _write_shard(objects, path, scan, shard, f"{prefix}/shard-{number}.jsonl")

    writes = [asyncio.create_task(write(*each)) for each in enumerate(scan.shards())]
    if not writes:
        return []
    try:
        done, _ = await asyncio.wait(writes, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in writes:
            task.cancel()
    for task in done:
        task.result()
    return [task.result() for task in writes]


async def _write_shard(
    objects: Objects, path: Path, scan: Scan, shard: Sequence[int], key: str
) -> Span:
    content = await asyncio.to_thread(_gathered, path, scan, shard)
    await objects.put(key, content)
    return Span(
        input_key=key, first=0, stop=len(shard), work=sum(scan.lengths[each] for each in shard)
    )


def _gathered(path: Path, scan: Scan, shard: Sequence[int]) -> bytes:
    lines = []
    with path.open("rb") as file:
        for each in shard:
            file.seek(scan.offsets[each])
            lines.append(file.read(scan.lengths[each]))
    return b"\n".join(lines) + b"\n"


async def _write_bad(objects: Objects, lines: Path, count: int, key: str) -> ShardResult | None:
    if not count:
        return None
    stored = await objects.put(key, lines)
    part = Part(key=key, bytes=stored.bytes, sha256=stored.sha256)
    return ShardResult(completed=0, failed=count, error=part)
