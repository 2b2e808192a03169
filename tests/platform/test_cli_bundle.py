"""`headpond bundle`, as people and scripts use it, with a workload found by entry point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from headpond.cli import app


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the spelling workload, and keep artifacts apart from the user's."""
    site = tmp_path / "site"
    (site / "spelling-1.0.dist-info").mkdir(parents=True)
    (site / "spelling-1.0.dist-info" / "METADATA").write_text("Name: spelling\nVersion: 1.0\n")
    (site / "spelling-1.0.dist-info" / "entry_points.txt").write_text(
        "[headpond.workloads]\nspelling = spelling_workload:record\n"
        "mumbling = spelling_workload:mumbling\n"
    )
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "spelling"))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("HEADPOND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.chdir(tmp_path)


def headpond(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result


def new() -> Path:
    """Write a bundle's skeleton, and the files it speaks of."""
    artifacts = ["--artifact", "template=file:template.txt", "--artifact", "alphabet=file:a.json"]
    headpond("bundle", "new", "tiny", "--workload", "spelling", *artifacts)
    root = Path("bundles/tiny")
    (root / "template.txt").write_text("<{}>")
    (root / "a.json").write_text(json.dumps({"letters": "abcdefghijklmnopqrstuvwxyz<>"}))
    return root


def edit(root: Path, **fields: Any) -> None:
    path = root / "bundle.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | fields))


def locked() -> Path:
    root = new()
    edit(root, fixtures=[{"name": "hello", "given": {"text": "hello"}}])
    headpond("bundle", "lock", str(root))
    return root


def test_the_version_is_printed() -> None:
    assert headpond("--version").stdout.count(".") >= 2


def test_new_writes_a_skeleton_that_says_what_to_fill_in() -> None:
    document = yaml.safe_load((new() / "bundle.yaml").read_text())
    assert document["workload"] == "spelling"
    assert document["execution"]["dtype"] == "float32"
    assert document["fixtures"] == []
    assert document["artifacts"] == [
        {"name": "template", "source": "file:template.txt"},
        {"name": "alphabet", "source": "file:a.json"},
    ]


def test_new_does_not_overwrite() -> None:
    new()
    again = ["bundle", "new", "tiny", "--workload", "spelling", "--artifact", "a=file:b.json"]
    assert "has a bundle.yaml already" in headpond(*again, code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["tiny", "--workload", "spelling", "--artifact", "weights"], 2, "NAME=SOURCE"),
        (["tiny", "--workload", "spelling"], 2, "--artifact"),
        (["tiny", "--workload", "cooking", "--artifact", "a=file:b.json"], 1, "'cooking'"),
        (["Tiny", "--workload", "spelling", "--artifact", "a=file:b.json"], 1, "'Tiny' is no name"),
        (["../up", "--workload", "spelling", "--artifact", "a=file:b.json"], 1, "is no name"),
    ],
    ids=["artifact", "none", "workload", "name", "path"],
)
def test_new_refuses_what_makes_no_bundle(arguments: list[str], code: int, says: str) -> None:
    assert says in headpond("bundle", "new", *arguments, code=code).stderr
    assert not Path("bundles").exists()


def test_lock_prints_the_reference_of_a_bundle_that_then_verifies() -> None:
    root = new()
    edit(root, fixtures=[{"name": "hello", "given": {"text": "hello"}}])
    ref = headpond("bundle", "lock", str(root)).stdout.strip()
    assert ref.startswith("tiny@0.1.0+")
    shown = json.loads(headpond("bundle", "show", str(root), "--json").stdout)
    assert shown["ref"] == ref
    assert ref == f"tiny@0.1.0+{shown['digest'][:12]}"
    assert "BROKEN" not in headpond("bundle", "verify", str(root)).stdout


def test_lock_warns_of_a_bundle_without_fixtures() -> None:
    assert "no fixtures" in headpond("bundle", "lock", str(new())).stderr


def test_lock_without_engine_fills_in_sizes_and_hashes_only() -> None:
    root = new()
    headpond("bundle", "lock", str(root), "--no-engine")
    document = yaml.safe_load((root / "bundle.yaml").read_text())
    assert [artifact["bytes"] for artifact in document["artifacts"]] == [4, 43]
    assert document["model"] == {}


def test_lock_refuses_a_pickle_in_one_line() -> None:
    root = new()
    edit(root, artifacts=[{"name": "weights", "source": "file:w.pth"}])
    (root / "w.pth").write_bytes(b"PK")
    error = headpond("bundle", "lock", str(root), code=1).stderr
    assert "convert it to .safetensors (artifacts.weights.source)" in error
    assert "Traceback" not in error


def test_verify_names_what_broke_for_people_and_for_scripts() -> None:
    root = locked()
    (root / "template.txt").write_text("<[]>")
    lines = headpond("bundle", "verify", str(root), code=1).stdout.splitlines()
    assert [line.split(":")[0] for line in lines if "BROKEN" in line] == [
        "BROKEN  artifact template"
    ]
    report = json.loads(headpond("bundle", "verify", str(root), "--json", code=1).stdout)
    assert report["ok"] is False
    [check] = [check for check in report["checks"] if not check["ok"]]
    assert check["name"] == "artifact template"
    assert check["param"] == "artifacts.template.sha256"
    assert "other content" in check["problem"]


def test_verify_of_a_good_bundle_says_so_to_scripts() -> None:
    report = json.loads(headpond("bundle", "verify", str(locked()), "--json").stdout)
    assert report["ok"] is True
    assert report["checks"][-1] == {
        "name": "fixture hello",
        "problem": None,
        "param": None,
        "ok": True,
    }


def test_verify_reports_a_workload_that_is_not_installed() -> None:
    root = locked()
    edit(root, workload="cooking")
    report = json.loads(headpond("bundle", "verify", str(root), "--json", code=1).stdout)
    assert [check["name"] for check in report["checks"] if not check["ok"]] == ["record"]


def test_export_writes_a_bundle_that_expects_what_the_source_does() -> None:
    root = locked()
    source = yaml.safe_load((root / "bundle.yaml").read_text())
    result = headpond("bundle", "export", str(root), "bundles/other")
    assert sorted(each.name for each in Path("bundles").iterdir()) == ["other", "tiny"]
    target = Path("bundles/other")
    document = yaml.safe_load((target / "bundle.yaml").read_text())
    assert document["fixtures"] == source["fixtures"]
    assert document["name"] == "tiny-onnx"
    assert result.stdout.startswith("tiny-onnx@0.1.0+")
    assert [artifact["source"] for artifact in document["artifacts"]] == [
        "file:template.txt",
        "file:onnx/alphabet.json",
    ]
    assert document["summary"].startswith("tiny@0.1.0+")
    assert headpond("bundle", "show", str(target), "--json").stdout.count(result.stdout.strip())
    assert "BROKEN" not in headpond("bundle", "verify", str(target)).stdout


def test_export_in_fewer_bits_needs_a_wider_tolerance_which_it_states() -> None:
    root = locked()
    arguments = ["bundle", "export", str(root), "bundles/int8", "--quantize", "int8"]
    error = headpond(*arguments, code=1).stderr
    assert "fixture 'hello': shares differs at [0]: expected" in error
    assert [each.name for each in Path("bundles").iterdir()] == ["tiny"]
    headpond(*arguments, "--tolerance", "0.06")
    document = yaml.safe_load(Path("bundles/int8/bundle.yaml").read_text())
    assert document["name"] == "tiny-onnx-int8"
    assert [fixture["tolerance"] for fixture in document["fixtures"]] == [0.06]
    assert "BROKEN" not in headpond("bundle", "verify", "bundles/int8").stdout


@pytest.mark.parametrize(
    ("fields", "arguments", "says"),
    [
        ({"workload": "mumbling"}, ["bundles/new"], "of mumbling can't be exported (workload)"),
        ({"fixtures": []}, ["bundles/new"], "no fixture"),
        ({}, ["bundles/tiny"], "'bundles/tiny' is there already"),
        ({}, ["nowhere/new"], "there is no folder 'nowhere'"),
        ({}, ["bundles/" + "x" * 300], "can't be written: File name too long"),
        ({"name": "t" * 64}, ["bundles/new"], "is no name"),
    ],
    ids=["workload", "fixtures", "target", "parent", "write", "name"],
)
def test_export_refuses_in_one_line_and_leaves_nothing(
    fields: dict[str, Any], arguments: list[str], says: str
) -> None:
    root = locked()
    edit(root, **fields)
    before = sorted(Path("bundles").rglob("*"))
    error = headpond("bundle", "export", str(root), *arguments, code=1).stderr
    assert says in error
    assert "Traceback" not in error
    assert sorted(Path("bundles").rglob("*")) == before


def test_export_does_not_mix_its_files_with_the_bundles_own() -> None:
    root = new()
    (root / "onnx").mkdir()
    (root / "template.txt").rename(root / "onnx" / "template.txt")
    sources = {"template": "file:./onnx/template.txt", "alphabet": "file:a.json"}
    artifacts = [{"name": name, "source": source} for name, source in sources.items()]
    edit(root, artifacts=artifacts, fixtures=[{"name": "hello", "given": {"text": "hello"}}])
    headpond("bundle", "lock", str(root))
    error = headpond("bundle", "export", str(root), "bundles/other", code=1).stderr
    assert "lies where the export goes (artifacts.template.source)" in error


@pytest.mark.parametrize("command", ["lock", "verify", "show"])
def test_a_bundle_that_is_not_there_is_wrong_usage(command: str) -> None:
    assert "nowhere" in headpond("bundle", command, "nowhere", code=2).stderr


def test_show_prints_memory_from_the_state_model() -> None:
    root = locked()
    shown = json.loads(headpond("bundle", "show", str(root), "--json").stdout)
    assert shown["memory"] == {
        "static_bytes": 28,
        "largest_request_bytes": 64 * 4,
        "granule": 1,
        "granule_bytes": 4,
    }
    text = headpond("bundle", "show", str(root)).stdout
    assert shown["digest"] in text
    assert "file:template.txt" in text
    assert "28 bytes static, at most 256 a request" in text


def test_show_of_a_bundle_without_numbers_leaves_memory_out() -> None:
    root = new()
    headpond("bundle", "lock", str(root), "--no-engine")
    assert json.loads(headpond("bundle", "show", str(root), "--json").stdout)["memory"] is None
    assert "memory" not in headpond("bundle", "show", str(root)).stdout


def test_show_of_a_draft_says_to_lock_it() -> None:
    assert "headpond bundle lock" in headpond("bundle", "show", str(new()), code=1).stderr
