"""Weights as `torch.save` wrote them, turned into safetensors once a machine.

A pickle can run code when it is read, so none is an artifact. For weights that exist in no
other form a bundle names one file by its digest (`execution.options.checkpoint`). It is read
by torch's weights-only unpickler, which makes tensors and plain containers and calls nothing
else; what is kept, by the digest of the file, and loaded from then on is safetensors.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from headpond.bundle.hashing import file_sha256
from headpond.bundle.sources import Local, resolve
from headpond.errors import BundleError
from headpond_workloads.vision.engine.options import Checkpoint

_PARAM = "execution.options.checkpoint"


def converted(checkpoint: Checkpoint, names: Sequence[str], root: Path, cache: Path) -> Path:
    """Return the safetensors file of a checkpoint, made when it is missing.

    Args:
        checkpoint: What the bundle says of it.
        names: The architecture's own names of its tensors, in order.
        root: The bundle's folder.
        cache: Where converted files are kept.

    Raises:
        BundleError: It is absent, differs from what was pinned, or holds other than tensors.
    """
    path = _checked(checkpoint, root)
    # The names are part of what the file holds.
    known_as = sha256("\n".join([checkpoint.rename, *names]).encode()).hexdigest()[:16]
    target = cache / "unpacked" / f"{checkpoint.sha256}-{known_as}.safetensors"
    if not target.is_file():
        state = _renamed(_tensors(path), checkpoint, names)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as folder:
            part = Path(folder) / target.name
            save_file(state, part)
            part.replace(target)
    return target


def _checked(checkpoint: Checkpoint, root: Path) -> Path:
    place = resolve(checkpoint.source, root, param=f"{_PARAM}.source")
    if not isinstance(place, Local):
        raise BundleError("a checkpoint must lie on this machine", param=f"{_PARAM}.source")
    if place.path.stat().st_size != checkpoint.bytes:
        raise BundleError("the checkpoint has another size than pinned", param=f"{_PARAM}.bytes")
    if file_sha256(place.path) != checkpoint.sha256:
        raise BundleError("the checkpoint has another digest than pinned", param=f"{_PARAM}.sha256")
    return place.path


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, OSError) as error:
        raise BundleError("the checkpoint holds other than weights", param=_PARAM) from error
    if not isinstance(state, Mapping):
        raise BundleError("the checkpoint is no mapping of names to tensors", param=_PARAM)
    tensors = {
        name: tensor.contiguous()
        for name, tensor in state.items()
        if isinstance(name, str) and isinstance(tensor, Tensor)
    }
    if len(tensors) != len(state):
        raise BundleError("the checkpoint holds other than tensors", param=_PARAM)
    return tensors


def _renamed(
    state: dict[str, Tensor], checkpoint: Checkpoint, names: Sequence[str]
) -> dict[str, Tensor]:
    if checkpoint.rename == "none":
        return state
    if len(state) != len(names):
        raise BundleError(
            f"the checkpoint holds {len(state)} tensors, the architecture {len(names)}",
            param=f"{_PARAM}.rename",
        )
    return dict(zip(names, state.values(), strict=True))
