"""A model whose every layer is shared by several ranks: rank 0's side of it.

Each rank has a share of the heads, their keys and values among them, and of the columns or
rows of the other matrices, as the model's own plan in transformers says. All compute every
step; rank 0 alone has the sequences, draws tokens and speaks to anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError, WorkerLost
from headpond_workloads.generation.engine.flex_attention import check_flex
from headpond_workloads.generation.engine.forward import CacheMemory, Forward, Opened, Runner, Span
from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.logits import Logits
from headpond_workloads.generation.engine.options import Options
from headpond_workloads.generation.engine.rank_group import Compute, Make, check_split
from headpond_workloads.generation.engine.ranks import Ranks, RankTask
from headpond_workloads.generation.engine.torch_forward import forward_over
from headpond_workloads.generation.engine.transformers_reading import reading_of
from headpond_workloads.generation.engine.weights import load_share, load_tokenizer

PARAM = "tensor_parallel"


class ParallelForward:
    """The runner and the memory of rank 0: what it does, the others do."""

    def __init__(self, ranks: Ranks, own: Forward) -> None:
        """Compute with `own`, and with what `ranks` made when they were told to."""
        self._ranks = ranks
        self._runner: Runner = own.runner
        self._cache: CacheMemory = own.cache
        self._cleared: list[int] = []

    @property
    def block_tokens(self) -> int:
        """See `CacheMemory`."""
        return self._cache.block_tokens

    def clear(self, blocks: Sequence[int]) -> None:
        """See `CacheMemory`; the other ranks do it before their next step."""
        self._cache.clear(blocks)
        self._cleared += blocks

    def forward(self, spans: Sequence[Span]) -> Logits:
        """See `Runner`.

        Raises:
            WorkerLost: A rank has ended: nothing can be computed any more.
        """
        cleared, self._cleared = self._cleared, []
        with self._ranks.together():
            self._ranks.tell(Compute(cleared=cleared, spans=spans))
            return self._runner.forward(spans)

    def lost(self) -> bool:
        """Return whether a rank has ended."""
        return self._ranks.lost


def open_parallel(
    folder: Path,
    bundle: Bundle,
    options: Options,
    settings: EngineSettings,
    block_tokens: int,
) -> Opened:
    """Start the ranks and load each one's share; see `open_torch`.

    Raises:
        BundleError: The model can't be shared by so many, there are too few GPUs, the options
            ask for what can't be, or a rank ended.
    """
    count = settings.tensor_parallel
    device = _device(settings.device, count)
    if options.cuda_graphs is True:
        raise BundleError(
            "cuda_graphs: true does not go with tensor_parallel: steps are not recorded",
            param="execution.options.cuda_graphs",
        )
    check_split(folder, count)
    torch.set_num_threads(settings.threads)
    execution = bundle.manifest.execution
    ranks = Ranks(
        RankTask(
            rank=1,
            ranks=count,
            port=0,
            folder=folder,
            architecture=execution.architecture,
            dtype=execution.dtype,
            device=device,
            threads=settings.threads,
        )
    )
    try:
        with ranks.together():
            model = load_share(folder, execution.architecture, execution.dtype, count)
            reading = reading_of(model, load_tokenizer(folder))
    except WorkerLost as error:
        raise BundleError("a rank of the model ended while it was loaded", param=PARAM) from error
    attention = options.attention or "sdpa"
    if attention == "flex":
        check_flex(reading.kv_shape(block_tokens), model.device)

    def make(shape: KvShape, blocks: int) -> Forward:
        share = replace(shape, kv_heads=shape.kv_heads // count)
        max_blocks = min(-(-reading.context_tokens // shape.block_tokens), blocks)
        with ranks.together():
            ranks.tell(Make(shape=share, blocks=blocks, max_blocks=max_blocks, attention=attention))
            own = forward_over(model, share, blocks, attention=attention, max_blocks=max_blocks)
        parallel = ParallelForward(ranks, own)
        return Forward(runner=parallel, cache=parallel, lost=parallel.lost, close=ranks.close)

    return Opened(reading=reading, shape=reading.kv_shape(block_tokens), make=make)


def _device(device: str, count: int) -> Literal["cpu", "cuda"]:
    there = torch.accelerator.current_accelerator(check_available=True)
    if device == "cuda":
        if torch.cuda.device_count() < count:
            raise BundleError(
                f"tensor_parallel: {count} needs as many GPUs, and the replica has "
                f"{torch.cuda.device_count()}",
                param=PARAM,
            )
        return "cuda"
    if device != "cpu":
        raise BundleError(f"tensor_parallel takes GPUs 0 and up, not {device}", param=PARAM)
    if there is not None:  # transformers' plan takes the machine's accelerator, whatever is asked
        raise BundleError(
            f"tensor_parallel on the CPU needs a process that sees no {there.type}", param=PARAM
        )
    return "cpu"
