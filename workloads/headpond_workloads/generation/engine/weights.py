"""Models, tokenizers and GGUF files by transformers."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GgufConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.utils import GENERATION_CONFIG_NAME
from transformers.utils.logging import disable_progress_bar

from headpond.errors import BundleError
from headpond_workloads.generation.engine.attention import NAME as ATTENTION


def load_model(
    folder: Path, architecture: str, dtype: str, device: torch.device
) -> PreTrainedModel:
    """Load the model in a dtype, with the paged attention.

    Raises:
        BundleError: It is not the architecture that it should be, or none that is served.
    """
    model = _load(folder, architecture, dtype)
    nn.Module.to(model, device)  # in place, as is eval; transformers' own are not typed
    nn.Module.eval(model)
    return model


def load_share(folder: Path, architecture: str, dtype: str, ranks: int) -> PreTrainedModel:
    """Load this rank's share of the model, with the paged attention.

    Called by every rank of a torch process group that is there.

    Raises:
        BundleError: As `load_model`, or transformers has no plan to share it.
    """
    model = _load(folder, architecture, dtype, DistributedConfig(tp_size=ranks))
    nn.Module.eval(model)
    return model


def outline_model(folder: Path, architecture: str, dtype: str) -> PreTrainedModel:
    """Make the model without its weights, on the meta device.

    Raises:
        BundleError: It is not the architecture that it should be, or no decoder.
    """
    config = _config(folder, architecture)
    try:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                config, dtype=getattr(torch, dtype)
            )
    except ValueError as error:
        raise _no_decoder(architecture, error) from error
    if (folder / GENERATION_CONFIG_NAME).is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model


def _load(
    folder: Path, architecture: str, dtype: str, distributed: DistributedConfig | None = None
) -> PreTrainedModel:
    disable_progress_bar()  # type: ignore[no-untyped-call]
    _config(folder, architecture)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, dtype),
            attn_implementation=ATTENTION,
            use_safetensors=True,
            local_files_only=True,
            distributed_config=distributed,
        )
    except ValueError as error:
        raise _no_decoder(architecture, error) from error
    if type(model).__name__ != architecture:
        raise BundleError(
            f"the bundle says {architecture}, its files make {type(model).__name__}",
            param="execution.architecture",
        )
    return model


def _config(folder: Path, architecture: str) -> PretrainedConfig:
    config: PretrainedConfig = AutoConfig.from_pretrained(folder)
    found = (getattr(config, "architectures", None) or [architecture])[0]
    if found != architecture:
        raise BundleError(
            f"the bundle says {architecture}, its files say {found}",
            param="execution.architecture",
        )
    return config


def _no_decoder(architecture: str, error: ValueError) -> BundleError:
    return BundleError(
        f"transformers can't load {architecture} as a decoder: {error}",
        param="execution.architecture",
    )


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer.

    Raises:
        BundleError: It has no fast implementation.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise BundleError("the tokenizer has no tokenizer.json", param="input.tokenizer")
    return tokenizer


def unpack(gguf: Path, folder: Path, dtype: str) -> None:
    """Write what a GGUF file holds into a folder, weights in `dtype`."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # By default the weights stay packed, and a model of packed weights can't be saved.
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=getattr(torch, dtype),
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
