"""The manifest: what it refuses, and what its digest depends on."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headpond.bundle.document import locate, read_document, read_manifest, render_manifest
from headpond.bundle.manifest import Draft, Manifest
from headpond.errors import BundleError

Document = dict[str, Any]


def document() -> Document:
    return {
        "name": "tiny",
        "version": "1.2.0",
        "workload": "echo",
        "summary": "A tiny bundle.",
        "licence": "Apache-2.0",
        "created": "2026-11-30T01:50:12Z",
        "artifacts": [
            {"name": "weights", "source": "file:w.gguf", "bytes": 24, "sha256": "ab" * 32},
            {"name": "template", "source": "file:t.jinja", "bytes": 5, "sha256": "cd" * 32},
        ],
        "model": {"layers": 2, "context_tokens": 64},
        "input": {"chat_template": "line\nline\n", "size": [224, 224]},
        "execution": {"architecture": "Echo", "dtype": "float32", "options": {"rope": 1e-5}},
        "output": {"stop": ["</s>"]},
        "limits": {"context_tokens": 32},
        "fixtures": [
            {"name": "hi", "given": {"text": "hi"}, "expect": {"ids": [1, 2]}, "tolerance": 0.5}
        ],
    }


def test_the_digest_of_a_manifest_never_changes() -> None:
    manifest = Manifest.parse(document())
    assert manifest.digest == "8fe6b17d98f9bcc866efd29004b326048c930c178ca21b40b0c3de486e62f975"
    assert manifest.ref == f"tiny@1.2.0+{manifest.digest[:12]}"
    assert manifest.created_s == int(datetime(2026, 11, 30, 1, 50, 12, tzinfo=UTC).timestamp())


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    backwards = dict(reversed(document().items()))
    backwards["model"] = dict(reversed(backwards["model"].items()))
    assert Manifest.parse(backwards).digest == Manifest.parse(document()).digest


def changed(path: str, value: object) -> Document:
    """Return the document with the value at a dotted path replaced."""
    whole = document()
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    at: Any = whole
    for step in steps:
        at = at[step]
    at[last] = value
    return whole


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "other"),
        ("version", "1.2.1"),
        ("workload", "generation"),
        ("summary", "Another."),
        ("licence", "MIT"),
        ("created", "2026-11-30T01:50:13Z"),
        ("artifacts.0.source", "file:x.gguf"),
        ("artifacts.1.bytes", 6),
        ("artifacts.1.sha256", "ce" * 32),
        ("model.layers", 3),
        ("input.chat_template", "line\nline"),
        ("input.size.1", 225),
        ("execution.architecture", "Echo2"),
        ("execution.dtype", "bfloat16"),
        ("execution.options.rope", 1e-6),
        ("output.stop", []),
        ("limits.context_tokens", 31),
        ("fixtures.0.given.text", "ho"),
        ("fixtures.0.expect.ids", [1, 3]),
        ("fixtures.0.tolerance", 0.25),
    ],
)
def test_the_digest_covers_every_field(path: str, value: object) -> None:
    assert Manifest.parse(changed(path, value)).digest != Manifest.parse(document()).digest


@pytest.mark.parametrize(
    ("path", "value", "param", "says"),
    [
        ("name", "Tiny", "name", "'Tiny' is no name"),
        ("name", "../up", "name", "is no name"),
        ("version", "1.2", "version", "MAJOR.MINOR.PATCH"),
        ("version", 1.2, "version", "string"),
        ("version", "1.2.0+build", "version", "MAJOR.MINOR.PATCH"),
        ("version", "01.2.0", "version", "MAJOR.MINOR.PATCH"),
        ("licence", " ", "licence", "at least 1"),
        ("created", "2026-11-30T01:50:12", "created", "timezone"),
        ("artifacts", [], "artifacts", "at least 1"),
        ("artifacts.0.bytes", 0, "artifacts.0.bytes", "greater than 0"),
        ("artifacts.0.bytes", "24", "artifacts.0.bytes", "integer"),
        ("artifacts.1.sha256", "AB" * 32, "artifacts.1.sha256", "lower-case hex"),
        ("artifacts.1.md5", "0", "artifacts.1.md5", "no such key"),
        ("model.layers", 2.0, "model.layers", "integer"),
        ("execution.dtype", "int3", "execution.dtype", "'int3' is not known"),
        ("execution.device", "cpu", "execution.device", "no such key"),
        ("fixtures.0.tolerance", -1, "fixtures.0.tolerance", "greater than"),
        ("fixtures.0.expect.x", float("nan"), "fixtures.0.expect.x", "finite"),
        ("artifacts.1.name", "weights", None, "'weights' is declared twice"),
        ("owner", "me", "owner", "no such key"),
    ],
)
def test_a_field_at_fault_is_named(path: str, value: object, param: str | None, says: str) -> None:
    with pytest.raises(BundleError, match=says) as caught:
        Manifest.parse(changed(path, value))
    assert caught.value.param == param


def test_every_field_at_fault_is_listed() -> None:
    broken = document() | {"name": "No", "version": "x"}
    with pytest.raises(BundleError, match=r"name: .*; version: "):
        Manifest.parse(broken)


@pytest.mark.parametrize("nothing", [None, [], "text"])
def test_a_document_that_is_no_mapping_is_refused(nothing: object) -> None:
    with pytest.raises(BundleError, match="bundle: "):
        Manifest.parse(nothing)


def test_a_draft_is_no_manifest_and_says_how_to_become_one() -> None:
    draft = document()
    del draft["artifacts"][0]["bytes"], draft["artifacts"][0]["sha256"]
    assert Draft.parse(draft).artifacts[0].sha256 is None
    with pytest.raises(BundleError, match="headpond bundle lock") as caught:
        Manifest.parse(draft)
    assert caught.value.param == "artifacts.0.bytes"


scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(section=st.dictionaries(st.text(), values, max_size=4))
def test_writing_and_reading_a_manifest_keeps_its_digest(section: Document) -> None:
    manifest = Manifest.parse(document() | {"input": section})
    again = Manifest.parse(yaml.safe_load(render_manifest(manifest)))
    assert again.digest == manifest.digest
    assert json.loads(manifest.canonical())["input"] == section


def test_token_ids_are_written_on_one_line() -> None:
    assert "ids: [1, 2]" in render_manifest(Manifest.parse(document()))


def test_a_manifest_is_found_by_its_folder_or_its_own_path(tmp_path: Path) -> None:
    path = tmp_path / "bundle.yaml"
    path.write_text(render_manifest(Manifest.parse(document())))
    assert locate(tmp_path) == locate(path) == path
    assert read_manifest(tmp_path) == read_manifest(str(path))


def test_a_folder_without_manifest_is_named_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BundleError, match="'empty'") as caught:
        read_manifest(tmp_path / "empty")
    assert str(tmp_path) not in caught.value.message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"name: [1,\nversion: }", "line 2"),
        (b"name: \xff", "not UTF-8"),
        (b"a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (b"a: &a [*b]", "undefined alias"),
    ],
)
def test_what_is_not_plain_yaml_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "bundle.yaml"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=says):
        read_document(path)
