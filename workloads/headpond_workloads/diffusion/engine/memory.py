"""Telling a lack of memory from other failures."""

from __future__ import annotations

import torch

FAILURES = (MemoryError, RuntimeError)
"""What a lack of memory is raised as, among others; torch's own is a RuntimeError."""


def is_lack(error: BaseException) -> bool:
    """Say whether an error means that memory was lacking."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


def give_back() -> None:
    """Return what the allocator keeps of a GPU's memory, after it was too little."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
