"""Numbers of the host, on their way to the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def host_integers(count: int, device: torch.device) -> Tensor:
    """Return `count` integers on the host, to be filled and copied to `device` without waiting.

    For a GPU they are in pinned memory, which the allocator does not hand out again before a
    copy of it has ended: whoever fills the next ones need not wait for this copy either.
    """
    return torch.empty(count, dtype=torch.long, pin_memory=device.type == "cuda")


def integers(values: Sequence[object], device: torch.device) -> Tensor:
    """Copy integers, or equally long sequences of them, to a device without waiting for it."""
    host = torch.tensor(values, dtype=torch.long, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)
