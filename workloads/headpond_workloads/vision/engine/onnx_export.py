"""A classifier of torch as an ONNX file, made once a machine.

ONNX Runtime computes a small convolutional network in float32 on a CPU core in a quarter to
half of the time that torch's modules take, with the same logits but for rounding.
"""

from __future__ import annotations

import tempfile
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import torch

from headpond_workloads.vision.engine.forward import Classifier

_LIBRARIES = ("headpond", "torch", "onnx", "onnxscript", "transformers")
_MOST_IMAGES = 64


def exported(classifier: Classifier, digest: str, height: int, width: int, cache: Path) -> Path:
    """Return the ONNX file of a classifier, exported when it is missing.

    Args:
        classifier: In float32, on the CPU.
        digest: Of everything that makes it.
        height: Rows of its input.
        width: Columns of its input.
        cache: Where exported files are kept, by digest and by the exporters' versions.
    """
    versions = " ".join(f"{library} {version(library)}" for library in _LIBRARIES)
    known_as = f"{digest}-{sha256(versions.encode()).hexdigest()[:16]}"
    target = cache / "unpacked" / f"{known_as}.onnx"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        # It has its name only when it is whole.
        with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as folder:
            part = Path(folder) / target.name
            _export(classifier, part, height, width)
            part.replace(target)
    return target


def _export(classifier: Classifier, path: Path, height: int, width: int) -> None:
    images = torch.export.Dim("images", min=1, max=_MOST_IMAGES)
    torch.onnx.export(
        classifier.eval(),
        (torch.zeros(2, height, width, 3),),
        path,
        input_names=["pixel_values"],
        output_names=["logits"],
        dynamic_shapes=({0: images},),
        external_data=False,
        verbose=False,
    )
