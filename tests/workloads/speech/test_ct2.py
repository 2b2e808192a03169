"""CTranslate2's file of tensors: read as written, and refused when it is anything else."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from headpond.errors import BundleError
from headpond_workloads.speech.engine.whisper.ct2 import read_tensors

TENSORS: dict[str, NDArray[np.generic]] = {
    "a/weight": np.arange(6, dtype=np.float16).reshape(2, 3),
    "b": np.array(7, dtype=np.int8),
    "c/bias": np.array([1.5, -2.0], dtype=np.float32),
}
_TYPES = {"float32": 0, "int8": 1, "float16": 4}


def text(value: str) -> bytes:
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def written(version: int = 6, aliases: dict[str, str] | None = None) -> bytes:
    parts = [struct.pack("<I", version), text("WhisperSpec"), struct.pack("<I", 3)]
    parts.append(struct.pack("<I", len(TENSORS)))
    for name, values in TENSORS.items():
        parts += [text(name), struct.pack("<B", values.ndim)]
        parts.append(struct.pack(f"<{values.ndim}I", *values.shape))
        parts.append(struct.pack("<BI", _TYPES[values.dtype.name], values.nbytes))
        parts.append(values.tobytes())
    parts.append(struct.pack("<I", len(aliases or {})))
    for alias, name in (aliases or {}).items():
        parts += [text(alias), text(name)]
    return b"".join(parts)


def test_tensors_come_out_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(written(aliases={"also": "c/bias"}))
    found = read_tensors(path, "weights")
    assert set(found) == {*TENSORS, "also"}
    for name, values in TENSORS.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].shape == values.shape
    np.testing.assert_array_equal(found["also"], TENSORS["c/bias"])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04K\x01.",
        written(version=99),
        written() + b"more",
        written(aliases={"also": "nobody"}),
        *(written()[:length] for length in range(5, len(written()), 7)),
    ],
)
def test_anything_else_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(BundleError) as raised:
        read_tensors(path, "execution.options.checkpoint")
    assert raised.value.param == "execution.options.checkpoint"
