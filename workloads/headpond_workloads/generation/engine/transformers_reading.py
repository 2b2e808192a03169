"""Reading a bundle's files by transformers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from headpond_workloads.generation.engine.native.weights import ARCHITECTURES
from headpond_workloads.generation.engine.plain import plain_logits
from headpond_workloads.generation.engine.reading import (
    DecoderReading,
    Reading,
    TokenizerReading,
)
from headpond_workloads.generation.engine.weights import (
    load_model,
    load_tokenizer,
    outline_model,
)


def read_folder(folder: Path, architecture: str, dtype: str) -> Reading:
    """Load a folder's model and tokenizer, and say what they are.

    Raises:
        BundleError: It is not that architecture, or none that is served.
    """
    model = load_model(folder, architecture, dtype, torch.device("cpu"))
    return reading_of(model, load_tokenizer(folder))


def read_outline(folder: Path, architecture: str, dtype: str) -> Reading:
    """Say what a folder's model and tokenizer are, but for what its weights tell.

    Raises:
        BundleError: It is not that architecture, or no decoder.
    """
    return _reading_of(outline_model(folder, architecture, dtype), load_tokenizer(folder), b"")


def reading_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Reading:
    """Say what a model and its tokenizer are.

    Raises:
        BundleError: The model can't be computed with paged attention.
    """
    return _reading_of(model, tokenizer, plain_logits(model).numpy().tobytes())


def _reading_of(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, plain: bytes
) -> Reading:
    config: PretrainedConfig = model.config.get_text_config()
    heads = config.num_attention_heads
    # The parameters of a share say the sizes of the whole ones; an outline's are nowhere.
    shared = (model.tp_size or 1) > 1 or model.device.type == "meta"
    parameters = {id(each) if shared else each.data_ptr(): each for each in model.parameters()}
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    linears = [
        each.weight for each in model.modules() if isinstance(each, nn.Linear) and each is not head
    ]
    return Reading(
        architecture=type(model).__name__,
        dtype=str(model.dtype).removeprefix("torch."),
        layers=config.num_hidden_layers,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=_head_dim(config),
        context_tokens=config.max_position_embeddings,
        vocab_tokens=config.vocab_size,
        weight_bytes=sum(each.numel() * each.element_size() for each in parameters.values()),
        layer_weights=sum(each.numel() for each in linears),
        head_weights=head.weight.numel() if isinstance(head, nn.Linear) else 0,
        eos_ids=tuple(sorted(set(_listed(model.generation_config, model.config)))),
        plain=plain,
        tokenizer=tokenizer_reading_of(tokenizer),
        decoder=None if shared else _decoder_of(model),
    )


def tokenizer_reading_of(tokenizer: PreTrainedTokenizerFast) -> TokenizerReading:
    """Say what a tokenizer is."""
    templates = tokenizer.chat_template or {}
    return TokenizerReading(
        backend=tokenizer.backend_tokenizer.to_str(),
        special_tokens=dict(tokenizer.special_tokens_map),
        templates={"default": templates} if isinstance(templates, str) else templates,
        chat_control_tokens=tokenizer.chat_control_tokens,
        splits_special=tokenizer.split_special_tokens,
    )


def _decoder_of(model: PreTrainedModel) -> DecoderReading | None:
    return decoder_reading_of(model) if type(model).__name__ in ARCHITECTURES else None


def decoder_reading_of(model: PreTrainedModel) -> DecoderReading:
    """Say what one of the `ARCHITECTURES` is."""
    config: PretrainedConfig = model.config.get_text_config()
    # The model's own module knows every scaling of positions.
    rotary = model.get_submodule("model.rotary_emb")
    frequencies: list[float] = rotary.get_buffer("inv_freq").float().tolist()
    table = model.get_parameter("model.embed_tokens.weight")
    head = model.get_parameter("lm_head.weight")
    return DecoderReading(
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        intermediate=config.intermediate_size,
        activation=config.hidden_act,
        epsilon=config.rms_norm_eps,
        windows=tuple(_windows(model, config)),
        frequencies=tuple(frequencies),
        rotation_scale=float(getattr(rotary, "attention_scaling", 1.0)),
        tied=table.data_ptr() == head.data_ptr(),
    )


def _windows(model: PreTrainedModel, config: PretrainedConfig) -> Iterable[int | None]:
    """Return each layer's sliding window: Mistral has one for all, others one in some layers."""
    common = getattr(config, "sliding_window", None)
    for at in range(config.num_hidden_layers):
        attention = model.get_submodule(f"model.layers.{at}.self_attn")
        yield getattr(attention, "sliding_window", common)


def _head_dim(config: PretrainedConfig) -> int:
    width: int | None = getattr(config, "head_dim", None)
    return width or config.hidden_size // config.num_attention_heads


def _listed(*configs: object) -> Iterable[int]:
    """Return the end-of-sequence IDs of configurations that hold one, several or none."""
    for config in configs:
        eos = getattr(config, "eos_token_id", None)
        if isinstance(eos, int):
            yield eos
        elif eos is not None:
            yield from eos
