"""Zeroed memory for weights and caches, on huge pages where the system gives them.

None of it is resident before it is written to.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from mmap import MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, mmap

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_PAGE_BYTES = 2 * 2**20
_LINE_BYTES = 64
_CHUNK_BYTES = 32 * 2**20


def zeros(count: int) -> Bytes:
    """Return `count` bytes of zeros, from the beginning of a page on.

    Raises:
        MemoryError: There is not so much.
    """
    try:
        mapped = mmap(-1, count + _PAGE_BYTES, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{count} bytes can't be allocated") from error
    with suppress(OSError):  # small pages do, where there are no others
        mapped.madvise(MADV_HUGEPAGE)
    # The array keeps the mapping alive.
    flat = np.frombuffer(mapped, dtype=np.uint8)
    start = -flat.ctypes.data % _PAGE_BYTES
    return flat[start : start + count]


class Arena:
    """Memory that is handed out piece by piece, and goes back when no piece is left.

    What is packed into it lies side by side: a page for each of many small matrices would be
    a third more than they need.
    """

    def __init__(self) -> None:
        """Hold nothing."""
        self._chunk = np.zeros(0, dtype=np.uint8)
        self._used = 0

    def zeros(self, count: int) -> Bytes:
        """Return `count` bytes of zeros, from the beginning of a cache line on.

        Raises:
            MemoryError: There is not so much.
        """
        if self._used + count > len(self._chunk):
            self._chunk, self._used = zeros(max(count, _CHUNK_BYTES)), 0
        piece = self._chunk[self._used : self._used + count]
        self._used += -(-count // _LINE_BYTES) * _LINE_BYTES
        return piece


def give_back_freed() -> None:
    """Give memory that was freed back to the system, where the C library can.

    Loading leaves some hundred MB behind that nothing will need again.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
