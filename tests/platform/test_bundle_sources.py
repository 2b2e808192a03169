"""Sources: what each scheme names, and that none leaves its place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headpond.bundle.sources import Local, Remote, resolve
from headpond.errors import BundleError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a bundle folder with files in it and around it."""
    root = tmp_path / "bundle"
    (root / "weights").mkdir(parents=True)
    for path in (root / "weights" / "w.gguf", root / "a.json", tmp_path / "secret.json"):
        path.write_text("{}")
    return root


def test_a_file_of_the_bundle_is_used_where_it_lies(root: Path) -> None:
    assert resolve("file:weights/w.gguf", root) == Local(path=root / "weights" / "w.gguf")


def test_a_bundle_may_lie_behind_a_symbolic_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    found = resolve("file:a.json", tmp_path / "link")
    assert isinstance(found, Local)
    assert found.path.samefile(root / "a.json")


@pytest.mark.parametrize(
    "source",
    [
        "file:../secret.json",
        "file:weights/../../secret.json",
        "file:weights/../a.json",
        "file:/etc/passwd",
        "file://etc/passwd",
        "file:..",
        "file:weights\\..\\..\\secret.json",
        "file:////etc/passwd",
        "file:///../etc/passwd",
        "package:headpond/../secret.json",
        "package:headpond//etc/passwd",
        f"hf:org/repo@{COMMIT}/../../other.json",
    ],
)
def test_a_path_that_leaves_its_place_is_refused(root: Path, source: str) -> None:
    with pytest.raises(BundleError, match="leaves its place") as caught:
        resolve(source, root, param="artifacts.x.source")
    assert caught.value.param == "artifacts.x.source"


def test_a_symbolic_link_out_of_the_bundle_is_refused(root: Path, tmp_path: Path) -> None:
    (root / "file.json").symlink_to(tmp_path / "secret.json")
    (root / "folder").symlink_to(tmp_path)
    for source in ("file:file.json", "file:folder/secret.json"):
        with pytest.raises(BundleError, match="leaves the bundle's folder"):
            resolve(source, root)


def test_a_symbolic_link_within_the_bundle_is_followed(root: Path) -> None:
    (root / "b.json").symlink_to(root / "a.json")
    assert resolve("file:b.json", root) == Local(path=root / "b.json")


def test_three_slashes_name_a_file_of_the_machine(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    assert resolve(f"file://{path}", root) == Local(path=path)


def test_a_file_that_is_absent_is_named_by_its_source(root: Path) -> None:
    with pytest.raises(BundleError, match=r"'file:none\.json' is not there") as caught:
        resolve("file:none.json", root)
    assert str(root) not in caught.value.message


def test_a_folder_is_no_artifact(root: Path) -> None:
    with pytest.raises(BundleError, match="is not there"):
        resolve("file:weights", root)


def test_a_package_is_found_but_never_imported(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "never_imported_weights"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "w.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = resolve("package:never_imported_weights/w.gguf", root)
    assert found == Local(path=package / "w.gguf")
    assert "never_imported_weights" not in sys.modules


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("package:surely_not_installed/w.gguf", "'surely_not_installed' .* is not installed"),
        ("package:headpond.bundle/w.gguf", "top-level import name"),
        ("package:json.py/w.gguf", "top-level import name"),
        ("package:sys/w.gguf", "is not installed"),
        ("package:headpond/none.gguf", "is not there"),
        ("package:headpond", "leaves its place"),
        ("hf:org/repo/model.safetensors", "not pinned"),
        ("hf:org/repo@main/model.safetensors", "not pinned"),
        ("hf:org/repo@0123abc/model.safetensors", "not pinned"),
        (f"hf:repo@{COMMIT}/model.safetensors", "not pinned"),
        ("weights/w.gguf", "has no scheme"),
        ("/weights/w.gguf", "has no scheme"),
        ("https:w.gguf", "none that can be opened"),
        ("local:///etc/passwd", "none that can be opened"),
        ("zip://w.gguf::file:///etc/passwd", "none that can be opened"),
        ("simplecache::https://a/w.gguf", "has no scheme|none that can be opened"),
    ],
)
def test_a_source_that_names_nothing_says_why(root: Path, source: str, says: str) -> None:
    with pytest.raises(BundleError, match=says):
        resolve(source, root)


@pytest.mark.parametrize(
    ("source", "url", "suffix"),
    [
        (f"hf:org/repo@{COMMIT}/a/b.safetensors", f"hf://org/repo@{COMMIT}/a/b.safetensors", ".safetensors"),
        ("https://example.org/m/w.gguf?download=1", "https://example.org/m/w.gguf?download=1", ".gguf"),
        ("s3://bucket/w.onnx", "s3://bucket/w.onnx", ".onnx"),
    ],
    ids=["hub", "https", "s3"],
)  # fmt: skip
def test_remote_sources_become_what_fsspec_opens(
    root: Path, source: str, url: str, suffix: str
) -> None:
    assert resolve(source, root) == Remote(url=url, suffix=suffix)
