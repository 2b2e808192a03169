"""Writing a job's files: all results joined, checked and told of in one manifest."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from headpond.errors import HeadpondError
from headpond.jobs.claim import Claim, DoneShard, Part
from headpond.jobs.errors import ObjectLost, ObjectsUnavailable
from headpond.jobs.job import NewFile
from headpond.jobs.objects import Objects
from headpond.jobs.results import Results
from headpond.jobs.store import new_file_id

OUTPUT_PURPOSE = "batch_output"


class IncompleteJob(HeadpondError):
    """The results of a job are not those of all its records."""

    code = "incomplete_job"


async def write_files(claim: Claim, objects: Objects, results: Results) -> None:
    """Join the results of a job's shards, check that all are there, and publish them.

    Shards whose stored results are not what was handed in are computed again.

    Raises:
        IncompleteJob: Records are missing, or there are too many.
        ObjectLost: Results are gone, and can't be computed again.
        LeaseLost: The task is not this worker's any more.
        ObjectsUnavailable: The object store failed for too long.
        JobsUnavailable: The database did not answer.
    """
    shards = await results.shards(claim)
    require_complete(claim, shards)
    with TemporaryDirectory(prefix="headpond-batch-") as folder:
        output = Joined(Path(folder, "output.jsonl"))
        error = Joined(Path(folder, "error.jsonl"))
        broken = []
        for shard in shards:
            wanted = [
                (output, shard.result.output, shard.result.completed),
                (error, shard.result.error, shard.result.failed),
            ]
            if not all([await joined.add(objects, part, n) for joined, part, n in wanted]):
                broken.append(shard)
        if broken:
            await results.redo(claim, broken)
            return
        prefix = f"jobs/{claim.job.id}/{claim.fence}"
        files = [
            await _file(claim, objects, joined, prefix, name)
            for joined, name in ((output, "output"), (error, "error"))
        ]
    manifest_key = f"{prefix}/manifest.json"
    source = {"file": claim.job.input_file_id, "sha256": claim.job_input_sha256}
    output_file, error_file = map(_described, files)
    document = manifest(claim, shards, source, output_file, error_file)
    await objects.put(manifest_key, orjson.dumps(document))
    await results.publish(claim, manifest_key, *files)
    await clean_up(objects, shards)


def manifest(
    claim: Claim, shards: Sequence[DoneShard], source: object, output: object, error: object
) -> Mapping[str, object]:
    """Return what a job's results are, and where they come from.

    Args:
        claim: The task of writing them.
        shards: What they are made of.
        source: The job's input.
        output: Where its output lines are.
        error: Where its error lines are.
    """
    job = claim.job
    return {
        "job": job.id,
        "endpoint": job.endpoint,
        "model": job.model,
        "bundle": job.bundle,
        "input": source,
        "records": {
            "total": job.progress.total,
            "completed": job.progress.completed,
            "failed": job.progress.failed,
        },
        "usage": job.usage,
        "output": output,
        "error": error,
        "shards": [asdict(shard) for shard in shards],
    }


class Joined:
    """Result lines of many shards, in a file on this machine."""

    def __init__(self, path: Path) -> None:
        """Begin a file; there is none while nothing was added."""
        self.path = path

    async def add(self, objects: Objects, part: Part | None, lines: int) -> bool:
        """Append a part; say whether it is what was handed in."""
        if part is None:
            return lines == 0
        try:
            content = await objects.get(part.key)
        except ObjectLost:
            return False
        return await asyncio.to_thread(self._append, content, part, lines)

    def _append(self, content: bytes, part: Part, lines: int) -> bool:
        if hashlib.sha256(content).hexdigest() != part.sha256 or content.count(b"\n") != lines:
            return False
        with self.path.open("ab") as file:
            file.write(content)
        return True


def require_complete(claim: Claim, shards: Sequence[DoneShard]) -> None:
    """Raise `IncompleteJob` unless every record is in one shard, and has one line."""
    progress = claim.job.progress
    lines = sum(shard.result.completed + shard.result.failed for shard in shards)
    if lines != progress.total:
        raise IncompleteJob(f"{lines} lines stand for {progress.total} records")
    ends: dict[str, int] = {}
    for shard in shards:  # in the order of their records
        if (span := shard.span) is None:
            continue
        records = shard.result.completed + shard.result.failed
        if span.first != ends.get(span.input_key, 0) or span.stop - span.first != records:
            raise IncompleteJob(f"the shard {shard.task_id} is not of the records that are its")
        ends[span.input_key] = span.stop


async def _file(
    claim: Claim, objects: Objects, joined: Joined, prefix: str, name: str
) -> NewFile | None:
    if not joined.path.exists():
        return None
    key = f"{prefix}/{name}.jsonl"
    stored = await objects.put(key, joined.path)
    return NewFile(
        id=new_file_id(),
        tenant=claim.job.tenant,
        purpose=OUTPUT_PURPOSE,
        filename=f"{claim.job.id}_{name}.jsonl",
        bytes=stored.bytes,
        sha256=stored.sha256,
        key=key,
        expires_after_s=claim.job.output_expires_after_s,
    )


def _described(file: NewFile | None) -> Mapping[str, object] | None:
    if file is None:
        return None
    return {"file": file.id, "bytes": file.bytes, "sha256": file.sha256}


async def clean_up(objects: Objects, shards: Sequence[DoneShard]) -> None:
    """Delete what the files were made of; what can't be deleted stays, and does no harm."""
    keys = {shard.span.input_key for shard in shards if shard.span is not None}
    for shard in shards:
        keys |= {part.key for part in (shard.result.output, shard.result.error) if part}
    with suppress(ObjectsUnavailable):
        for key in keys:
            await objects.delete(key)
