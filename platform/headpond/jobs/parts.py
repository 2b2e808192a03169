"""Parts: the results of a job below its target, one for each shard, and a manifest at last."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from headpond.errors import HeadpondError, InvalidRequest
from headpond.jobs.claim import Claim, DoneShard
from headpond.jobs.errors import ObjectsUnavailable
from headpond.jobs.job import LineError, Source, Target
from headpond.jobs.objects import Objects, Stored, measured
from headpond.jobs.parquet import write_results
from headpond.jobs.prefixes import open_target
from headpond.jobs.results import Results
from headpond.jobs.roots import Roots
from headpond.jobs.writing import Joined, clean_up, manifest, require_complete

MANIFEST = "manifest.json"
OUTPUT, ERRORS = "part", "errors"

_UNFINISHED = ".part"
"""What a store on a disk calls an object that is being written."""


class TargetTaken(HeadpondError):
    """Something else lies where results are to go; it is not overwritten."""

    code = "output_conflict"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartFile:
    """One object of results, as the manifest tells of it."""

    name: str
    records: int
    bytes: int
    sha256: str
    shard: str


async def write_parts(
    claim: Claim, source: Source, target: Target, objects: Objects, results: Results, roots: Roots
) -> None:
    """Write the results of a job's shards below its target, and then the manifest.

    All are checked before the first is written; whoever does this again writes the same, and
    nothing is replaced by other content.

    Raises:
        IncompleteJob: Records are missing, or there are too many.
        ObjectLost: Results are gone, and can't be computed again.
        LeaseLost: The task is not this worker's any more.
        ObjectsUnavailable: A store failed for too long.
        JobsUnavailable: The database did not answer.
    """
    shards = await results.shards(claim)
    require_complete(claim, shards)
    with TemporaryDirectory(prefix="headpond-batch-") as local:
        spool = _Spool(Path(local), target.format)
        broken = [
            shard
            for number, shard in enumerate(shards)
            if not await spool.add(objects, number, shard)
        ]
        if broken:
            await results.redo(claim, broken)
            return
        try:
            folder = open_target(roots, target, claim.job.tenant)
            await _require_no_other(folder, spool)
            output = [await _written(folder, each) for each in spool.output]
            errors = [await _written(folder, each) for each in spool.errors]
            lineage = orjson.loads(await objects.get(claim.job_input_key or ""))
            described = {**asdict(source), "objects": lineage}
            document = manifest(claim, shards, described, output, errors)
            text = orjson.dumps(document, option=orjson.OPT_INDENT_2)
            await _put_once(folder, MANIFEST, text)
        except (TargetTaken, InvalidRequest) as error:
            param = "output.url"
            await results.refuse(
                claim, [LineError(error.code or "invalid_request", error.message, param=param)]
            )
            return
    await results.publish(claim, f"{target.url.rstrip('/')}/{MANIFEST}")
    await clean_up(objects, shards)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A part that was checked and lies on this machine."""

    path: Path
    records: int
    shard: str


class _Spool:
    """The parts on this machine, in the format of the target."""

    def __init__(self, folder: Path, form: str) -> None:
        self._folder = folder
        self._form = form
        self.output: list[_Waiting] = []
        self.errors: list[_Waiting] = []

    @property
    def names(self) -> frozenset[str]:
        return frozenset(each.path.name for each in (*self.output, *self.errors))

    async def add(self, objects: Objects, number: int, shard: DoneShard) -> bool:
        """Fetch the results of a shard; say whether they are what was handed in."""
        result = shard.result
        for name, part, lines, kept in (
            (OUTPUT, result.output, result.completed, self.output),
            (ERRORS, result.error, result.failed, self.errors),
        ):
            joined = Joined(self._folder / f"{name}-{number:05}.jsonl")
            if not await joined.add(objects, part, lines):
                return False
            if part is not None:
                path = await asyncio.to_thread(self._formed, joined.path)
                kept.append(_Waiting(path, lines, shard.task_id))
        return True

    def _formed(self, path: Path) -> Path:
        if self._form == "jsonl":
            return path
        formed = path.with_suffix(f".{self._form}")
        write_results(path.read_bytes(), formed)
        path.unlink()
        return formed


async def _require_no_other(folder: Objects, spool: _Spool) -> None:
    """Check that only an earlier attempt of this job has written here."""
    ours = spool.names | {MANIFEST}
    for entry in await folder.entries():
        if entry.key not in ours and not entry.key.endswith(_UNFINISHED):
            raise TargetTaken(f"`{entry.key}` is there, and is not of this batch.")


async def _written(folder: Objects, part: _Waiting) -> PartFile:
    stored = await _put_once(folder, part.path.name, part.path)
    return PartFile(
        name=part.path.name,
        records=part.records,
        bytes=stored.bytes,
        sha256=stored.sha256,
        shard=part.shard,
    )


async def _put_once(folder: Objects, key: str, content: bytes | Path) -> Stored:
    """Write an object unless it is there, and check what the store has.

    Raises:
        TargetTaken: It is there with other content.
        ObjectsUnavailable: The store failed for too long, or has other content than was given.
    """
    wanted = await asyncio.to_thread(measured, content)
    known = await folder.sha256(key)
    if known is None:
        await folder.put(key, content)
        if await folder.sha256(key) != wanted.sha256:
            raise ObjectsUnavailable("The object store gave other content than was stored.")
    elif known != wanted.sha256:
        raise TargetTaken(f"`{key}` is there with other content.")
    return wanted
