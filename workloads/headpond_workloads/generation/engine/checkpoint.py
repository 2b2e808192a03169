"""The weights of a model's folder, read one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import ml_dtypes  # noqa: F401 - teaches numpy what safetensors calls bfloat16
from safetensors import safe_open

from headpond_workloads.native.packing import Weights


class Checkpoint(Mapping[str, Weights]):
    """Weights by name, each read anew whenever it is asked for."""

    def __init__(self, folder: Path) -> None:
        """Look into the safetensors files of `folder`."""
        self._open = ExitStack()
        files = [
            self._open.enter_context(safe_open(path, framework="np"))
            for path in sorted(folder.glob("*.safetensors"))
        ]
        self._files = {name: file for file in files for name in file.keys()}  # noqa: SIM118

    def __getitem__(self, name: str) -> Weights:
        weights: Weights = self._files[name].get_tensor(name)
        return weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()


def load_tensors(path: Path) -> Mapping[str, Weights]:
    """Return all that a safetensors file holds.

    Raises:
        safetensors.SafetensorError: It is none.
    """
    with safe_open(path, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
