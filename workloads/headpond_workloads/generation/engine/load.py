"""From a bundle and a deployment's settings to an engine that is ready to step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.generation.engine.blocks import BlockPool
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.kv_cache import KvCache, KvShape
from headpond_workloads.generation.engine.limits import Limits
from headpond_workloads.generation.engine.probe import check_attention
from headpond_workloads.generation.engine.runner import ModelRunner
from headpond_workloads.generation.engine.tokenizer import Tokenizer
from headpond_workloads.generation.engine.weights import load_model, load_tokenizer, model_folder
from headpond_workloads.generation.record import record

BLOCK_TOKENS = 16
"""Tokens of a KV block, unless the bundle's model section says otherwise."""


def load(bundle: Bundle, settings: EngineSettings) -> GenerationEngine:
    """Load the bundle's model onto the device and size its KV cache to the memory given.

    Raises:
        BundleError: The files don't make a model that this engine can serve.
    """
    device = _device(settings)
    torch.set_num_threads(settings.threads)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    with model_folder(bundle) as folder:
        model = load_model(folder, bundle, device)
        backend = load_tokenizer(folder)
    check_attention(model)
    shape = KvShape.of(model, bundle.manifest.model.get("block_tokens", BLOCK_TOKENS))
    symbols = _symbols(model, shape)
    tokenizer = Tokenizer(
        backend, vocab_tokens=symbols["vocab_tokens"], chat_template=_chat_template(bundle)
    )
    blocks = _blocks(shape, settings)
    cache = KvCache(shape, blocks, device)
    return GenerationEngine(
        tokenizer=tokenizer,
        runner=ModelRunner(model, cache),
        cache=cache,
        pool=BlockPool(blocks),
        limits=_limits(symbols, bundle, settings),
        eos_ids=_eos_ids(model, tokenizer, bundle),
        symbols=symbols,
    )


def _device(settings: EngineSettings) -> torch.device:
    device = torch.device(settings.device)
    if device.type not in record.fit.devices:
        raise BundleError(f"generation runs on {', '.join(record.fit.devices)}, not {device.type}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BundleError(f"the deployment asks for {settings.device}, and there is no CUDA device")
    return device


def _symbols(model: PreTrainedModel, shape: KvShape) -> Mapping[str, int]:
    """Return what the model really is, in the record's symbols."""
    config: PretrainedConfig = model.config.get_text_config()
    parameters = {parameter.data_ptr(): parameter for parameter in model.parameters()}
    return {
        "layers": shape.layers,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "context_tokens": config.max_position_embeddings,
        "vocab_tokens": config.vocab_size,
        "weight_bytes": sum(each.numel() * each.element_size() for each in parameters.values()),
        "block_tokens": shape.block_tokens,
    }


def _blocks(shape: KvShape, settings: EngineSettings) -> int:
    blocks = settings.state_bytes // shape.block_bytes
    if blocks < 1:
        raise BundleError(
            f"one KV block takes {shape.block_bytes} bytes, and the deployment gives "
            f"{settings.state_bytes}; raise state_bytes"
        )
    return blocks


def _limits(symbols: Mapping[str, int], bundle: Bundle, settings: EngineSettings) -> Limits:
    """Bound the context by the model, by the bundle, and by the memory of one request."""
    state = record.bind(symbols, bundle.manifest.execution.dtype)
    block = symbols["block_tokens"]
    most = {"prompt_tokens": 0, "max_output_tokens": block, "cached_tokens": 0}
    held = settings.state_bytes // state.request_bytes(most, block) * block
    context = bundle.manifest.limits.get("context_tokens", symbols["context_tokens"])
    return Limits(
        context_tokens=min(context, symbols["context_tokens"], held),
        vocab_tokens=symbols["vocab_tokens"],
    )


def _eos_ids(model: PreTrainedModel, tokenizer: Tokenizer, bundle: Bundle) -> frozenset[int]:
    """Return the tokens that end a sequence: the model's own, and the bundle's."""
    declared = bundle.manifest.output.get("stop_tokens", [])
    if not isinstance(declared, list) or not all(isinstance(token, str) for token in declared):
        raise BundleError("stop_tokens must be a list of tokens", param="output.stop_tokens")
    names = [token for token in declared if isinstance(token, str)]
    found = tokenizer.control_ids(names)
    if len(found) != len(set(names)):
        raise BundleError(
            f"the tokenizer lacks one of the stop tokens {names}", param="output.stop_tokens"
        )
    return found | frozenset(_listed(model.generation_config, model.config))


def _listed(*configs: object) -> Iterable[int]:
    """Return the end-of-sequence IDs of configurations that hold one, several or none."""
    for config in configs:
        eos = getattr(config, "eos_token_id", None)
        if isinstance(eos, int):
            yield eos
        elif eos is not None:
            yield from eos


def _chat_template(bundle: Bundle) -> str | None:
    """Return the template that the bundle puts in place of the tokenizer's, if any."""
    template = bundle.manifest.input.get("chat_template")
    if template is None:
        return None
    if not isinstance(template, str):
        raise BundleError(
            "chat_template must be a text or an artifact", param="input.chat_template"
        )
    path = bundle.files.get(template)
    return template if path is None else path.read_text(encoding="utf-8")
