"""Formats: what is loadable by name and content, and what is refused."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from headpond.bundle.formats import check_content, check_suffix
from headpond.errors import BundleError


def check(tmp_path: Path, suffix: str, content: bytes) -> None:
    """Check `content` as an artifact `x` whose name ends in `suffix`."""
    path = tmp_path / "blob"
    path.write_bytes(content)
    check_suffix("x", suffix)
    check_content("x", path, suffix)


def safetensors(values: int) -> bytes:
    return save({"a": np.zeros(values, np.float32)})


def safetensors_with_header(length: int) -> bytes:
    """Return a valid file whose header is `length` bytes long."""
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return length.to_bytes(8, "little") + header.ljust(length) + bytes(4)


def torch_zip() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    return content.getvalue()


GGUF = b"GGUF" + (3).to_bytes(4, "little") + bytes(16)
ONNX = b"\x08\x08\x12\x07pytorch"


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".safetensors", safetensors(3)),
        (".SafeTensors", safetensors(3)),
        (".gguf", GGUF),
        (".onnx", ONNX),
        (".json", b'{"model_type": "llama"}'),
        (".json", b'{"auto_map": 17, "map": 18}'),
        (".txt", "#version: 0.2\n\u0120 t\n".encode()),
        (".jinja", b"{{ messages }}"),
        (".yaml", b"a: 1"),
    ],
    ids=["safetensors", "case", "gguf", "onnx", "json", "vocabulary", "merges", "jinja", "yaml"],
)
def test_what_is_loadable_passes(tmp_path: Path, suffix: str, content: bytes) -> None:
    check(tmp_path, suffix, content)


def test_a_safetensors_header_that_begins_like_a_pickle_passes(tmp_path: Path) -> None:
    content = safetensors_with_header(0x0280)
    assert content.startswith(b"\x80\x02")
    check(tmp_path, ".safetensors", content)


@pytest.mark.parametrize("suffix", [".bin", ".pt", ".pth", ".PTH", ".ckpt", ".pkl", ".joblib"])
def test_pickled_weights_are_refused_by_name(suffix: str) -> None:
    with pytest.raises(BundleError, match=r"'x' .* pickle.*convert it to \.safetensors") as caught:
        check_suffix("x", suffix)
    assert caught.value.param == "artifacts.x.source"


@pytest.mark.parametrize("suffix", [".safetensors", ".gguf", ".onnx", ".json", ".txt"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_refused_under_any_name(tmp_path: Path, suffix: str, protocol: int) -> None:
    with pytest.raises(BundleError, match=r"is a pickle.*convert it to \.safetensors"):
        check(tmp_path, suffix, pickle.dumps({"a": [1.5] * 9}, protocol=protocol))


@pytest.mark.parametrize("suffix", [".safetensors", ".gguf", ".onnx", ".json"])
def test_a_torch_archive_is_refused_under_any_name(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(BundleError, match=r"zip archive, as torch\.save writes"):
        check(tmp_path, suffix, torch_zip())


@pytest.mark.parametrize("suffix", [".py", ".so", ".sh"])
def test_code_is_refused(suffix: str) -> None:
    with pytest.raises(BundleError, match="is code"):
        check_suffix("x", suffix)


@pytest.mark.parametrize(
    "config",
    [
        {"auto_map": {"AutoModel": "modeling.Model"}},
        {"text_config": {"auto_map": {"AutoConfig": "repo--configuration.Config"}}},
        {"parts": [{"auto_map": {"AutoModel": "modeling.Model"}}]},
    ],
    ids=["top", "nested", "listed"],
)
def test_remote_code_is_refused(tmp_path: Path, config: object) -> None:
    with pytest.raises(BundleError, match="auto_map"):
        check(tmp_path, ".json", json.dumps(config).encode())


@pytest.mark.parametrize(
    ("suffix", "content", "says"),
    [
        (".safetensors", GGUF, "is GGUF; call it .gguf"),
        (".safetensors", safetensors(3)[:-1], "is not safetensors"),
        (".safetensors", b"", "is not safetensors"),
        (".gguf", b"GGUF" + bytes(20), "not GGUF version 2 or 3"),
        (".gguf", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (".onnx", b"\x0a\x08", "is not ONNX"),
        (".json", b"{", "is not JSON"),
        (".json", b"[" * 100_000, "nested too deep"),
        (".txt", b"\xff\xfe", "not UTF-8"),
        (".txt", b"a\0b", "not UTF-8"),
    ],
    ids=list("abcdefghij"),
)
def test_content_that_is_not_what_its_name_says_is_refused(
    tmp_path: Path, suffix: str, content: bytes, says: str
) -> None:
    with pytest.raises(BundleError, match=says):
        check(tmp_path, suffix, content)


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(BundleError, match=r"ends in '\.xyz'; loadable are .*\.safetensors"):
        check_suffix("x", ".xyz")
