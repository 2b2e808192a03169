"""Loading, locking and verifying: whatever was changed in a locked bundle has a name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from headpond.bundle.fixtures import FixtureFailed
from headpond.bundle.loading import load_engine
from headpond.bundle.locking import lock_engine, lock_files, write_draft, write_lock
from headpond.bundle.manifest import Manifest
from headpond.bundle.store import Store, open_bundle
from headpond.bundle.verifying import Check, Verification
from headpond.engine import EngineSettings
from headpond.errors import BundleError, DeclarationError
from headpond.record import Tally, WorkloadRecord

SETTINGS = EngineSettings(state_bytes=2**20)

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> WorkloadRecord:
    """Return the spelling workload's record; its engine can be imported."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "spelling"))
    found = import_module("spelling_workload").record
    assert isinstance(found, WorkloadRecord)
    return found


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return a store of this test's own, where `open_bundle` looks too."""
    monkeypatch.setenv("HEADPOND_CACHE", str(tmp_path / "cache"))
    return Store(tmp_path / "cache")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """Return the folder of a bundle that was written but never locked."""
    root = tmp_path / "tiny"
    document = {
        "name": "tiny",
        "version": "1.0.0",
        "workload": "spelling",
        "summary": "Tiny.",
        "licence": "MIT",
        "artifacts": [
            {"name": "template", "source": "file:template.txt"},
            {"name": "alphabet", "source": "file:alphabet.json"},
        ],
        "execution": {"architecture": "Spelling", "dtype": "float32"},
        "limits": {"most_letters": 32},
        "fixtures": [
            {"name": "hello", "given": {"text": "hello"}, "tolerance": 0.001},
            {"name": "world", "given": {"text": "world"}},
        ],
    }
    write_draft(root, document)
    (root / "template.txt").write_text("<{}>")
    (root / "alphabet.json").write_text(json.dumps({"letters": "abcdefghijklmnopqrstuvwxyz<>"}))
    return root


@pytest.fixture
def locked(draft: Path, record: WorkloadRecord, store: Store) -> Path:
    lock(draft, record, store)
    return draft


def lock(root: Path, record: WorkloadRecord, store: Store) -> Manifest:
    return write_lock(root, lock_engine(record, lock_files(root, store), SETTINGS))


def edit(root: Path, change: Edit) -> None:
    """Change `bundle.yaml` by hand."""
    path = root / "bundle.yaml"
    document = yaml.safe_load(path.read_text())
    change(document)
    path.write_text(yaml.safe_dump(document))


def verify(root: Path, record: WorkloadRecord, store: Store, **options: Any) -> dict[str, Check]:
    """Return the checks by name."""
    checks: list[Check] = []
    settings = options.get("settings", SETTINGS)
    good = Verification(store, checks.append).verify(root, lambda name: record, settings)
    assert good == all(check.problem is None for check in checks)
    return {check.name: check for check in checks}


def broken(checks: dict[str, Check]) -> dict[str, str]:
    return {check.name: check.problem for check in checks.values() if check.problem is not None}


def test_locking_fills_in_what_is_there(draft: Path, record: WorkloadRecord, store: Store) -> None:
    manifest = lock(draft, record, store)
    sizes = {artifact.name: artifact.bytes for artifact in manifest.artifacts}
    assert sizes == {"template": 4, "alphabet": (draft / "alphabet.json").stat().st_size}
    assert manifest.model == {"alphabet_letters": 28, "most_letters": 64}
    hello, world = manifest.fixtures
    assert hello.expect["ids"] == [26, 7, 4, 11, 11, 14, 27]
    assert world.expect.keys() == {"ids", "shares"}
    assert manifest.created_s > 0
    assert open_bundle(draft).manifest == manifest


def test_a_locked_bundle_loads_and_verifies(
    locked: Path, record: WorkloadRecord, store: Store
) -> None:
    engine = load_engine(record, open_bundle(locked), SETTINGS)
    assert engine.observe({"text": "ab"})["ids"] == [26, 0, 1, 27]
    checks = verify(locked, record, store)
    assert not broken(checks)
    assert list(checks) == [
        "manifest",
        "artifact template",
        "artifact alphabet",
        "record",
        "fixtures are locked",
        "engine loads",
        "model",
        "fixture hello",
        "fixture world",
    ]


def test_locking_again_changes_nothing(locked: Path, record: WorkloadRecord, store: Store) -> None:
    before = (locked / "bundle.yaml").read_bytes()
    lock(locked, record, store)
    assert (locked / "bundle.yaml").read_bytes() == before


def test_locking_after_a_change_gives_another_digest(
    locked: Path, record: WorkloadRecord, store: Store
) -> None:
    before = open_bundle(locked).manifest.digest
    (locked / "template.txt").write_text("[{}]")
    assert lock(locked, record, store).digest != before


def test_a_failed_lock_leaves_the_bundle_as_it_was(
    draft: Path, record: WorkloadRecord, store: Store
) -> None:
    edit(draft, lambda document: document["fixtures"][1].update(given={"txt": 1}))
    before = (draft / "bundle.yaml").read_bytes()
    with pytest.raises(FixtureFailed, match="'world' cannot be computed: text must be a string"):
        lock(draft, record, store)
    assert (draft / "bundle.yaml").read_bytes() == before
    assert {path.name for path in draft.iterdir()} == {
        "bundle.yaml",
        "template.txt",
        "alphabet.json",
    }


def test_what_does_not_come_out_twice_is_not_locked(
    draft: Path, record: WorkloadRecord, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = iter(range(1000))
    engine = import_module("spelling_workload").SpellingEngine
    monkeypatch.setattr(engine, "observe", lambda *_: {"ids": next(counter), "shares": []})
    with pytest.raises(FixtureFailed, match="ids differs"):
        lock(draft, record, store)


def test_sizes_can_be_locked_without_an_engine(draft: Path, store: Store) -> None:
    manifest = write_lock(draft, lock_files(draft, store).manifest)
    assert not manifest.model
    assert manifest.artifacts[0].bytes == 4


@pytest.mark.parametrize("at", range(4))
def test_a_flipped_byte_of_the_template_is_named(
    locked: Path, record: WorkloadRecord, store: Store, at: int
) -> None:
    content = bytearray((locked / "template.txt").read_bytes())
    content[at] ^= 1
    (locked / "template.txt").write_bytes(content)
    with pytest.raises(BundleError, match="'template' has other content"):
        open_bundle(locked)
    problems = broken(verify(locked, record, store))
    assert list(problems) == ["artifact template"]


def test_every_broken_artifact_is_named(locked: Path, record: WorkloadRecord, store: Store) -> None:
    (locked / "template.txt").write_text("longer than it was")
    (locked / "alphabet.json").unlink()
    problems = broken(verify(locked, record, store))
    assert list(problems) == ["artifact template", "artifact alphabet"]
    assert "18 bytes, the manifest says 4" in problems["artifact template"]
    assert "is not there" in problems["artifact alphabet"]


def test_a_template_that_was_changed_and_hashed_again_fails_its_fixture(
    locked: Path, record: WorkloadRecord, store: Store
) -> None:
    (locked / "template.txt").write_text("{}.")
    write_lock(locked, lock_files(locked, store).manifest)
    says = "'hello': ids differs at .0.: .*template or alphabet"
    with pytest.raises(FixtureFailed, match=says):
        load_engine(record, open_bundle(locked), SETTINGS)
    assert list(broken(verify(locked, record, store))) == ["fixture hello", "fixture world"]


def test_a_model_that_was_changed_and_hashed_again_is_named(
    locked: Path, record: WorkloadRecord, store: Store
) -> None:
    (locked / "alphabet.json").write_text(json.dumps({"letters": "zyx"}))
    write_lock(locked, lock_files(locked, store).manifest)
    says = "has alphabet_letters 3, the manifest says 28"
    with pytest.raises(BundleError, match=says) as caught:
        load_engine(record, open_bundle(locked), SETTINGS)
    assert caught.value.param == "model.alphabet_letters"
    assert "model" in broken(verify(locked, record, store))


def test_another_dtype_fails_the_contract_that_vouches_for_precision(
    locked: Path, record: WorkloadRecord, store: Store
) -> None:
    edit(locked, lambda document: document["execution"].update(dtype="bfloat16"))
    with pytest.raises(FixtureFailed, match=r"shares differs at .0.: .*vouches for precision"):
        load_engine(record, open_bundle(locked), SETTINGS)
    assert "fixture hello" in broken(verify(locked, record, store))


@pytest.mark.parametrize(
    ("change", "param", "says"),
    [
        (lambda d: d["execution"].update(dtype="float64"), "execution.dtype", "not in 'float64'"),
        (lambda d: d["model"].pop("most_letters"), "model.most_letters", "needs most_letters"),
        (lambda d: d["model"].update(layers=2), "model.layers", "no symbol 'layers'"),
        (lambda d: d.update(workload="other"), "workload", "is for other, not for spelling"),
        (lambda d: d["limits"].update(words=2), "limits.words", "no 'words' to limit"),
        (lambda d: d["limits"].update(most_letters=65), "limits.most_letters", "65.* above .*64"),
    ],
    ids=["dtype", "missing", "unknown", "workload", "limit", "high"],
)
def test_a_manifest_that_does_not_bind_is_refused_before_the_engine_loads(
    locked: Path, record: WorkloadRecord, store: Store, change: Edit, param: str, says: str
) -> None:
    edit(locked, change)
    unloadable = replace(record, engine="nothing_to_import:load")
    with pytest.raises(BundleError, match=says) as caught:
        load_engine(unloadable, open_bundle(locked), SETTINGS)
    assert caught.value.param == param
    assert list(broken(verify(locked, unloadable, store))) == ["record"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda d: d["fixtures"][0]["expect"].update(ids=[1]), "fixture hello"),
        (lambda d: d["fixtures"][0]["given"].update(text="hallo"), "fixture hello"),
        (lambda d: d["fixtures"][1]["expect"].pop("shares"), "fixtures are locked"),
        (lambda d: d.update(fixtures=[]), "fixtures are locked"),
        (lambda d: d["artifacts"][0].update(bytes=5), "artifact template"),
        (lambda d: d["artifacts"][0].update(sha256="0" * 64), "artifact template"),
        (lambda d: d["artifacts"][0].update(source="file:../template.txt"), "artifact template"),
        (lambda d: d["artifacts"][0].update(source="file:a.pth"), "artifact template"),
        (lambda d: d["artifacts"][0].pop("sha256"), "manifest"),
        (lambda d: d.update(version="1"), "manifest"),
    ],
    ids=["expect", "given", "half", "none", "bytes", "sha", "up", "pickle", "unlocked", "version"],
)
def test_verifying_names_what_was_changed(
    locked: Path, record: WorkloadRecord, store: Store, change: Edit, name: str
) -> None:
    edit(locked, change)
    assert list(broken(verify(locked, record, store))) == [name]


def test_verifying_without_an_engine_imports_none(
    locked: Path, record: WorkloadRecord, store: Store
) -> None:
    unloadable = replace(record, engine="nothing_to_import:load")
    checks = verify(locked, unloadable, store, settings=None)
    assert not broken(checks)
    assert "fixture hello" not in checks


def test_a_device_that_the_workload_does_not_run_on_is_refused(
    locked: Path, record: WorkloadRecord
) -> None:
    with pytest.raises(BundleError, match="runs on cpu, not on 'cuda:1'"):
        load_engine(record, open_bundle(locked), replace(SETTINGS, device="cuda:1"))


def test_sharing_a_model_that_only_one_device_computes_is_refused(
    locked: Path, record: WorkloadRecord
) -> None:
    with pytest.raises(BundleError, match="tensor_parallel must be 1"):
        load_engine(record, open_bundle(locked), replace(SETTINGS, tensor_parallel=2))


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("nothing_to_import:load", "nothing_to_import is missing"),
        ("spelling_workload:nothing", "names nothing"),
    ],
)
def test_an_engine_that_cannot_be_found_is_a_mistake_of_the_record(
    locked: Path, record: WorkloadRecord, engine: str, says: str
) -> None:
    with pytest.raises(DeclarationError, match=says):
        load_engine(replace(record, engine=engine), open_bundle(locked), SETTINGS)


def test_a_draft_does_not_replace_a_bundle(locked: Path) -> None:
    document = yaml.safe_load((locked / "bundle.yaml").read_text())
    with pytest.raises(BundleError, match=r"'tiny' has a bundle\.yaml already"):
        write_draft(locked, document)


def test_an_engine_counts_what_its_record_declares(locked: Path, record: WorkloadRecord) -> None:
    counting = replace(record, tallies=(Tally(name="capitals", summary="Capital letters."),))
    with pytest.raises(DeclarationError, match="does not count 'capitals'"):
        load_engine(counting, open_bundle(locked), SETTINGS)
