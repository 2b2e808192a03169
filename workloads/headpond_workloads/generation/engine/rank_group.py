"""The ranks of one model, each a process with its share of it, as torch sees them.

Two groups: over the first, the layers of a forward sum what each rank has computed; over the
second, on the host, rank 0 tells the others what to compute next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from transformers import AutoConfig

from headpond.errors import BundleError
from headpond_workloads.generation.engine.forward import Span
from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.options import AttentionKind

HOST = "127.0.0.1"
"""All ranks are on one machine."""

_FORWARD_TIMEOUT = timedelta(minutes=5)
_CONTROL_TIMEOUT = timedelta(days=3650)  # there may be nothing to compute for long


@dataclass(frozen=True, kw_only=True, slots=True)
class Make:
    """Make a cache, in place of the one there is.

    Attributes:
        shape: Of the rank's own keys and values.
        blocks: How many blocks.
        max_blocks: The most that one sequence has.
        attention: How to attend.
    """

    shape: KvShape
    blocks: int
    max_blocks: int
    attention: AttentionKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Compute:
    """Clear blocks, then compute a step.

    Attributes:
        cleared: Blocks to set to zero, in order.
        spans: The step.
    """

    cleared: Sequence[int]
    spans: Sequence[Span]


Command = Make | Compute


class RankGroup:
    """This process's place among the ranks; there is one in a process."""

    def __init__(
        self, store: TCPStore, *, rank: int, ranks: int, device: Literal["cpu", "cuda"]
    ) -> None:
        """Meet the other ranks; returns when all are there.

        Args:
            store: By which they find each other.
            rank: Of this process.
            ranks: How many there are.
            device: The kind of device that each computes on.
        """
        backend = "nccl" if device == "cuda" else "gloo"
        if device == "cuda":
            torch.cuda.set_device(rank)
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=ranks, timeout=_FORWARD_TIMEOUT
        )
        control = dist.new_group(backend="gloo", timeout=_CONTROL_TIMEOUT)
        if not isinstance(control, dist.ProcessGroup):
            raise RuntimeError("this process is none of the ranks")
        self._control = control

    def tell(self, command: Command) -> None:
        """Send a command to the other ranks; called by rank 0.

        Raises:
            RuntimeError: A rank is gone.
        """
        dist.broadcast_object_list([command], src=0, group=self._control)

    def listen(self) -> Command:
        """Wait for the next command of rank 0; called by the others.

        Raises:
            RuntimeError: A rank is gone.
        """
        heard: list[Command | None] = [None]
        dist.broadcast_object_list(heard, src=0, group=self._control)
        command = heard[0]
        if command is None:
            raise RuntimeError("rank 0 said nothing")
        return command

    def leave(self) -> None:
        """End this process's place; what others still compute with it fails."""
        dist.destroy_process_group()


def check_split(folder: Path, ranks: int) -> None:
    """Refuse a model whose heads can't be dealt out evenly.

    Raises:
        BundleError: Says which heads, and what would do.
    """
    config = AutoConfig.from_pretrained(folder).get_text_config()
    heads = config.num_attention_heads
    for kind, count in (
        ("KV", getattr(config, "num_key_value_heads", None) or heads),
        ("query", heads),
    ):
        if count % ranks:
            raise BundleError(
                f"tensor_parallel: {ranks} does not divide the model's {count} {kind} heads; "
                f"take a divisor of {count}",
                param="tensor_parallel",
            )
