"""A bundle's model by transformers' modules, on any device."""

from __future__ import annotations

from pathlib import Path

import torch

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.generation.engine.cuda_graphs import recorder_of
from headpond_workloads.generation.engine.flex_attention import check_flex
from headpond_workloads.generation.engine.forward import Forward, Opened
from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.options import Options
from headpond_workloads.generation.engine.torch_forward import forward_over
from headpond_workloads.generation.engine.transformers_reading import reading_of
from headpond_workloads.generation.engine.weights import load_model, load_tokenizer


def open_torch(
    folder: Path,
    bundle: Bundle,
    options: Options,
    settings: EngineSettings,
    block_tokens: int,
) -> Opened:
    """Load a bundle's model, and give what makes forwards of it.

    Args:
        folder: The bundle's files as transformers reads them.
        bundle: The bundle.
        options: Its options.
        settings: Of the deployment.
        block_tokens: Tokens of a KV block.

    Raises:
        BundleError: The options ask for what can't be, or it can't be served.
    """
    device = torch.device(settings.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BundleError(f"the deployment asks for {settings.device}, and there is no CUDA device")
    torch.set_num_threads(settings.threads)
    execution = bundle.manifest.execution
    model = load_model(folder, execution.architecture, execution.dtype, device)
    reading = reading_of(model, load_tokenizer(folder))
    recorder = recorder_of(options.cuda_graphs, model.device)
    attention = options.attention or "sdpa"
    if attention == "flex":
        check_flex(reading.kv_shape(block_tokens), model.device)

    def make(shape: KvShape, blocks: int) -> Forward:
        return forward_over(
            model,
            shape,
            blocks,
            attention=attention,
            max_blocks=min(-(-reading.context_tokens // shape.block_tokens), blocks),
            recorder=recorder,
            max_rows=min(settings.max_slots, blocks),
        )

    return Opened(reading=reading, shape=reading.kv_shape(block_tokens), make=make)
