"""A bundle's files as a folder that transformers can read.

transformers loads folders with fixed file names. The artifacts of a safetensors bundle are
linked into such a folder; a GGUF artifact is unpacked into one, once per machine, since
that takes many times longer than loading the result.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from headpond.bundle.store import Bundle, default_cache
from headpond_workloads.generation.engine.apart import UnpackTask, done_apart

_FILE_NAMES: Mapping[str, str] = {
    "config": "config.json",
    "generation_config": "generation_config.json",
    "tokenizer": "tokenizer.json",
    "tokenizer_config": "tokenizer_config.json",
    "special_tokens_map": "special_tokens_map.json",
    "chat_template": "chat_template.jinja",
    "weights": "model.safetensors",
}
"""File names by artifact name; any other artifact goes by its name, e.g. a shard."""


@contextmanager
def model_folder(bundle: Bundle, cache: Path | None = None) -> Iterator[Path]:
    """Give a folder as transformers reads it, for as long as loading takes.

    Args:
        bundle: A bundle with one GGUF artifact, or with the files of a safetensors folder.
        cache: Where unpacked GGUF files are kept; `default_cache()` when None.
    """
    gguf = [name for name, path in bundle.files.items() if path.suffix == ".gguf"]
    if gguf:
        yield _unpacked(bundle, gguf[0], cache if cache is not None else default_cache())
        return
    with tempfile.TemporaryDirectory(prefix="headpond-") as folder:
        for name, path in bundle.files.items():
            (Path(folder) / _FILE_NAMES.get(name, name)).symlink_to(path.resolve())
        yield Path(folder)


def _unpacked(bundle: Bundle, name: str, cache: Path) -> Path:
    """Return the folder of an unpacked GGUF artifact, made when it is missing.

    It has its name only when it is whole: it is made beside it and renamed.
    """
    digests = {artifact.name: artifact.sha256 for artifact in bundle.manifest.artifacts}
    dtype = bundle.manifest.execution.dtype
    target = cache / "unpacked" / f"{digests[name]}-{dtype}-transformers-{version('transformers')}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=target.parent))
    try:
        done_apart(UnpackTask(gguf=bundle.files[name], folder=part, dtype=dtype))
        _rename(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def _rename(part: Path, target: Path) -> None:
    """Rename, unless another process was faster."""
    try:
        os.rename(part, target)  # noqa: PTH104  Path.rename would do the same
    except OSError:
        if not target.is_dir():
            raise
