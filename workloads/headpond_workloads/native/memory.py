"""Zeroed memory for weights and caches, on huge pages where the system gives them."""

from __future__ import annotations

import ctypes
import weakref

import torch
from torch import Tensor

from headpond_workloads.native.library import packing


def zeros(size: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """Return a flat tensor of `size` zeros.

    Raises:
        MemoryError: There is not so much.
    """
    native = packing()
    count = size * dtype.itemsize
    address = native.headpond_alloc(max(count, 1))
    if not address:
        raise MemoryError(f"{count} bytes can't be allocated")
    buffer = (ctypes.c_uint8 * max(count, 1)).from_address(address)
    weakref.finalize(buffer, native.headpond_free, address)
    # The tensor keeps the buffer, and so the memory, alive.
    return torch.frombuffer(buffer, dtype=torch.uint8, count=count).view(dtype)


def give_back_freed() -> None:
    """Give memory that was freed back to the system, where the C library can.

    Loading leaves some hundred MB behind that nothing will need again.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
