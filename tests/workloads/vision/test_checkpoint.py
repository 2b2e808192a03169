"""Checkpoints of torch: only of a pinned digest, only tensors, converted once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from headpond.errors import BundleError
from headpond_workloads.vision.engine.checkpoint import converted
from headpond_workloads.vision.engine.options import Checkpoint

STATE = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}
NAMES = ["first.weight", "first.bias"]


def pinned(folder: Path, content: object, **changes: object) -> Checkpoint:
    path = folder / "model.pth"
    torch.save(content, path)
    data = path.read_bytes()
    fields = {
        "source": "file:model.pth",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    return Checkpoint.model_validate(fields | changes)


def read(path: Path) -> dict[str, Tensor]:
    assert path.suffix == ".safetensors"
    return load_file(path)


def test_names_are_kept_or_given_in_order(tmp_path: Path) -> None:
    checkpoint = pinned(tmp_path, STATE)
    kept = read(converted(checkpoint, NAMES, tmp_path, tmp_path / "cache"))
    assert list(kept) == sorted(STATE)
    in_order = checkpoint.model_copy(update={"rename": "in_order"})
    renamed = read(converted(in_order, NAMES, tmp_path, tmp_path / "cache"))
    assert torch.equal(renamed["first.weight"], STATE["a.weight"])
    assert torch.equal(renamed["first.bias"], STATE["a.bias"])


def test_it_is_converted_once(tmp_path: Path) -> None:
    checkpoint = pinned(tmp_path, STATE)
    first = converted(checkpoint, NAMES, tmp_path, tmp_path / "cache")
    made_at = first.stat().st_mtime_ns
    assert converted(checkpoint, NAMES, tmp_path, tmp_path / "cache") == first
    assert first.stat().st_mtime_ns == made_at
    assert [each.name for each in (tmp_path / "cache" / "unpacked").iterdir()] == [first.name]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"sha256": "0" * 64}, "sha256"),
        ({"bytes": 7}, "bytes"),
        ({"source": "file:other.pth"}, "source"),
        ({"source": "file:../model.pth"}, "source"),
        ({"source": "https://example.org/model.pth"}, "source"),
    ],
)
def test_another_file_than_was_pinned_is_refused(
    tmp_path: Path, changes: dict[str, object], param: str
) -> None:
    checkpoint = pinned(tmp_path, STATE, **changes)
    with pytest.raises(BundleError) as refusal:
        converted(checkpoint, NAMES, tmp_path, tmp_path / "cache")
    assert refusal.value.param == f"execution.options.checkpoint.{param}"
    assert not (tmp_path / "cache").exists()


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.path,))


def test_code_in_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "was here"
    checkpoint = pinned(tmp_path, {"a.weight": Evil(mark)})
    with pytest.raises(BundleError, match="other than weights"):
        converted(checkpoint, NAMES, tmp_path, tmp_path / "cache")
    assert not mark.exists()


@pytest.mark.parametrize("content", [[1, 2], {"a": 1}, {"a": {"b": torch.ones(1)}}, {1: STATE}])
def test_other_than_named_tensors_is_refused(tmp_path: Path, content: object) -> None:
    with pytest.raises(BundleError, match="tensors"):
        converted(pinned(tmp_path, content), NAMES, tmp_path, tmp_path / "cache")


def test_another_number_of_tensors_is_refused(tmp_path: Path) -> None:
    checkpoint = pinned(tmp_path, STATE, rename="in_order")
    with pytest.raises(BundleError, match="2 tensors, the architecture 3"):
        converted(checkpoint, [*NAMES, "second"], tmp_path, tmp_path / "cache")
