"""Jobs over the objects below a prefix: parts and a manifest, once, whoever is killed."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from batches import BUNDLE, Mill, as_jsonl, echo_line
from headpond.errors import InvalidRequest
from headpond.jobs import reading
from headpond.jobs.computing import Pace
from headpond.jobs.job import Job, JobStatus, Source, Target
from headpond.jobs.prefixes import open_source
from headpond.jobs.roots import Roots
from headpond.jobs.worker import Worker, WorkerOptions
from headpond.testing.clock import FakeClock
from mortality import Death, Life, MortalBackend, MortalDatabase, MortalObjects, MortalRoots

SHARD = 8
LEASE_S = 30.0


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SHARD_RECORDS", SHARD)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(url=f"file://{tmp_path}/lake/in/")


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(url=f"file://{tmp_path}/lake/out")


def write_input(tmp_path: Path, names: list[str]) -> None:
    """Write records into two objects, of which one does not end with a newline."""
    middle = len(names) // 2
    first, second = (
        as_jsonl([echo_line(n) for n in half]) for half in (names[:middle], names[middle:])
    )
    (tmp_path / "lake/in/b.jsonl").write_bytes(second)
    (tmp_path / "lake/in/a.jsonl").write_bytes(first.rstrip(b"\n"))
    (tmp_path / "lake/in/_SUCCESS").write_bytes(b"no input")


def verified(tmp_path: Path, job: Job, names: list[str]) -> dict[str, Any]:
    """Check the manifest against what lies there, and that each record is there once."""
    out, lake = tmp_path / "lake/out", tmp_path / "lake/in"
    manifest: dict[str, Any] = json.loads((out / "manifest.json").read_bytes())
    parts = [*manifest["output"], *manifest["error"]]
    told = {part["name"] for part in parts} | {"manifest.json"}
    assert {path.name for path in out.iterdir() if path.suffix != ".part"} == told
    found: Counter[str] = Counter()
    for part in parts:
        content = (out / part["name"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (
            part["bytes"],
            part["sha256"],
        )
        lines = [json.loads(line) for line in content.splitlines()]
        assert len(lines) == part["records"]
        found.update(line["custom_id"] for line in lines)
    assert found == Counter(names)
    for each in manifest["input"]["objects"]:
        content = (lake / each["key"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (
            each["bytes"],
            each["sha256"],
        )
    assert manifest["records"]["total"] == len(names)
    assert (manifest["job"], manifest["bundle"]) == (job.id, BUNDLE)
    assert all(shard["attempts"] for shard in manifest["shards"])
    return manifest


async def test_a_prefix_becomes_parts_and_a_manifest(
    mill: Mill, source: Source, target: Target, tmp_path: Path
) -> None:
    names = [f"r{number}" for number in range(20)]
    write_input(tmp_path, names)
    job = await mill.submit_prefix(source, target)
    await mill.drain()
    now = await mill.job(job)
    assert (now.status, now.input_file_id, now.output_file_id) == (JobStatus.COMPLETED, None, None)
    assert now.manifest_key == f"{target.url}/manifest.json"
    manifest = verified(tmp_path, job, names)
    assert [each["name"] for each in manifest["output"]] == [
        f"part-0000{number}.jsonl" for number in range(3)
    ]
    assert [(each["key"], each["lines"]) for each in manifest["input"]["objects"]] == [
        ("a.jsonl", 10),
        ("b.jsonl", 10),
    ]
    assert mill.computed.total() == len(names)


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_lost_or_doubled_whenever_workers_die(
    seed: int, mill: Mill, source: Source, target: Target, tmp_path: Path, clock: FakeClock
) -> None:
    dice = random.Random(seed)  # noqa: S311 - the same in every run
    names = [f"r{number}" for number in range(100)]
    write_input(tmp_path, names)
    job = await mill.submit_prefix(source, target)
    deaths = 0
    while not await mill.is_over(job):
        life = Life(dice.randrange(20, 100))
        backend = MortalBackend(cards=mill.backend.cards, compute=mill.backend.compute, life=life)
        worker = Worker(
            MortalDatabase(mill.database, life),
            MortalObjects(mill.objects, life),
            backend,
            mill.endpoints,
            owner=f"worker-{deaths}",
            options=WorkerOptions(lease_s=LEASE_S, pace=Pace(in_flight=4, shard_s=60.0)),
            roots=MortalRoots(mill.roots, life),
        )
        try:
            await mill.drain(worker)
        except Death:
            deaths += 1
            assert (tmp_path / "lake/out/manifest.json").exists() is _complete(tmp_path)
        clock.advance(LEASE_S + 1.0)
    assert deaths > 1
    assert (await mill.job(job)).status is JobStatus.COMPLETED
    verified(tmp_path, job, names)
    assert mill.computed.total() - len(names) <= deaths * SHARD


def _complete(tmp_path: Path) -> bool:
    """Say whether a manifest is there of which all parts are."""
    out = tmp_path / "lake/out"
    if not (out / "manifest.json").exists():
        return False
    manifest = json.loads((out / "manifest.json").read_bytes())
    return all((out / part["name"]).exists() for part in manifest["output"])


@pytest.mark.parametrize("name", ["part-00000.jsonl", "notes.txt"])
async def test_what_others_wrote_is_not_overwritten(
    name: str, mill: Mill, source: Source, target: Target, tmp_path: Path
) -> None:
    write_input(tmp_path, ["a", "b"])
    job = await mill.submit_prefix(source, target)
    (tmp_path / "lake/out").mkdir()
    (tmp_path / "lake/out" / name).write_text("mine")
    await mill.drain()
    now = await mill.job(job)
    assert now.status is JobStatus.FAILED
    assert [error.code for error in now.errors] == ["output_conflict"]
    assert (tmp_path / "lake/out" / name).read_text() == "mine"
    assert not (tmp_path / "lake/out/manifest.json").exists()


async def test_results_that_rot_before_they_are_published_are_computed_again(
    mill: Mill, source: Source, target: Target, tmp_path: Path
) -> None:
    names = [f"r{number}" for number in range(20)]
    write_input(tmp_path, names)
    job = await mill.submit_prefix(source, target)
    worker = mill.worker()
    for _ in range(4):  # all but the last task
        await worker.step()
    rotten = next((tmp_path / "objects/jobs" / job.id).glob("*-output.jsonl"))
    rotten.write_bytes(b"{}\n")
    await mill.drain(worker)
    verified(tmp_path, job, names)
    assert mill.computed.total() > len(names)


async def test_bad_lines_are_told_by_object_and_line(
    mill: Mill, source: Source, target: Target, tmp_path: Path
) -> None:
    (tmp_path / "lake/in/a.jsonl").write_bytes(as_jsonl([echo_line("a")]))
    (tmp_path / "lake/in/day/b.jsonl").write_bytes(as_jsonl([echo_line("b"), "{", echo_line("a")]))
    job = await mill.submit_prefix(source, target)
    await mill.drain()
    now = await mill.job(job)
    assert now.status is JobStatus.FAILED
    bad, double = now.errors
    assert (bad.code, bad.line) == ("invalid_json_line", 2)
    assert "`day/b.jsonl`" in bad.message
    assert (double.code, double.line) == ("duplicate_custom_id", 3)
    assert "line 1 of `a.jsonl`" in double.message


@pytest.mark.parametrize(
    "url",
    [
        "file://{}/elsewhere",
        "file://{}/lake",
        "file://{}/lake/../elsewhere",
        "file://{}/lake/./in",
        "file://{}/lake2/in",
        "{}/lake/in",
        "memory://lake/in",
        "http://127.0.0.1/lake/in",
        "zip://a::file://{}/lake/in",
        "file://{}/lake/in/*",
        "file://{}/lake/link",
        "file://",
        "",
    ],
)
async def test_only_what_is_below_a_root_is_read(url: str, mill: Mill, tmp_path: Path) -> None:
    for name in ("elsewhere", "lake2/in"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.jsonl").write_bytes(as_jsonl([echo_line("a")]))
    (tmp_path / "lake/link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidRequest) as caught:
        await open_source(mill.roots, Source(url=url.format(tmp_path)), "mill")
    assert caught.value.param == "input.url"


@pytest.mark.parametrize("name", ["elsewhere", "elsewhere/a.jsonl"])
async def test_a_link_out_of_the_prefix_is_refused(
    name: str, mill: Mill, source: Source, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.jsonl").write_bytes(as_jsonl([echo_line("a")]))
    (tmp_path / "lake/in/link").symlink_to(tmp_path / name)
    with pytest.raises(InvalidRequest):
        await open_source(mill.roots, source, "mill")


async def test_a_tenant_has_a_folder_of_its_own(tmp_path: Path) -> None:
    roots = Roots([f"file://{tmp_path}/{{tenant}}"])
    (tmp_path / "mill/in").mkdir(parents=True)
    (tmp_path / "mill/in/a.jsonl").write_bytes(b"{}")
    source = Source(url=f"file://{tmp_path}/mill/in")
    _, entries = await open_source(roots, source, "mill")
    assert [entry.key for entry in entries] == ["a.jsonl"]
    for tenant in ("brook", "..", "a/b", ""):
        with pytest.raises(InvalidRequest):
            await open_source(roots, source, tenant)
