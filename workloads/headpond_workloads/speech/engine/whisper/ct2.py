"""Tensors as CTranslate2 keeps them: a plain binary file, without code.

The file is a version, the name and revision of the model's class, then each tensor as name,
shape, type and bytes, and at last other names of tensors. All integers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headpond.errors import BundleError

_VERSIONS = range(5, 8)
_TYPES: Mapping[int, type[np.generic]] = {
    0: np.float32,
    1: np.int8,
    2: np.int16,
    3: np.int32,
    4: np.float16,
}
_MOST_DIMENSIONS = 8

Tensors = Mapping[str, NDArray[np.generic]]


def read_tensors(path: Path, param: str) -> Tensors:
    """Return the tensors of a file by name.

    Args:
        path: The file.
        param: The manifest's field that names it, for errors.

    Raises:
        BundleError: It is no such file, a version that is not known, or cut off.
    """
    try:
        return _Reader(path.read_bytes()).tensors()
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise BundleError(f"the weights can't be read: {error}", param=param) from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def tensors(self) -> Tensors:
        version = self._number("I")
        if version not in _VERSIONS:
            raise ValueError(f"CTranslate2 models of version {version} are not known here")
        self._text()
        self._number("I")
        found = dict(self._tensor() for _ in range(self._number("I")))
        for _ in range(self._number("I")):
            alias, name = self._text(), self._text()
            if name not in found:
                raise ValueError(f"{alias} is another name of {name}, which is not there")
            found[alias] = found[name]
        if self._at != len(self._content):
            raise ValueError("there is more than was announced")
        return found

    def _tensor(self) -> tuple[str, NDArray[np.generic]]:
        name = self._text()
        dimensions = self._number("B")
        if dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"{name} has {dimensions} dimensions")
        shape = tuple(self._number("I") for _ in range(dimensions))
        kind = self._number("B")
        if kind not in _TYPES:
            raise ValueError(f"{name} is of type {kind}, which is not known here")
        size = self._number("I")
        dtype = np.dtype(_TYPES[kind]).newbyteorder("<")
        values = np.frombuffer(self._taken(size), dtype=dtype)
        return name, values.reshape(shape)

    def _text(self) -> str:
        return self._taken(self._number("H")).rstrip(b"\0").decode()

    def _number(self, form: str) -> int:
        form = f"<{form}"
        (number,) = struct.unpack(form, self._taken(struct.calcsize(form)))
        return int(number)

    def _taken(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._content):
            raise ValueError("the file ends too early")
        taken = self._content[self._at : end]
        self._at = end
        return taken
