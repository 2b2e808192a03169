"""From a bundle and a deployment's settings to an engine that is ready to step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.generation.engine.adapters import load_adapters
from headpond_workloads.generation.engine.assembly import assemble
from headpond_workloads.generation.engine.block_manager import BlockManager
from headpond_workloads.generation.engine.blocks import BlockPool
from headpond_workloads.generation.engine.conversation import Conversation, Ways
from headpond_workloads.generation.engine.drafting import Target, load_drafting
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.forward import CacheMemory
from headpond_workloads.generation.engine.grammar import Grammars
from headpond_workloads.generation.engine.kv_cache import KvShape
from headpond_workloads.generation.engine.limits import Limits
from headpond_workloads.generation.engine.options import Options, options_of
from headpond_workloads.generation.engine.prefix import ABSOLUTE_POSITIONS, PrefixCache
from headpond_workloads.generation.engine.probe import plain_logits
from headpond_workloads.generation.engine.tokenizer import Tokenizer
from headpond_workloads.generation.engine.weights import (
    load_model,
    load_tokenizer,
    model_folder,
    weight_bytes,
)
from headpond_workloads.generation.record import record
from headpond_workloads.native.memory import give_back_freed

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
    engine = _engine(bundle, settings, model, backend)
    del model  # the native forward has its own copy of the weights
    give_back_freed()
    return engine


def _engine(
    bundle: Bundle,
    settings: EngineSettings,
    model: PreTrainedModel,
    backend: PreTrainedTokenizerFast,
) -> GenerationEngine:
    options = options_of(bundle.manifest)
    plain = plain_logits(model)
    shape = KvShape.of(model, bundle.manifest.model.get("block_tokens", BLOCK_TOKENS))
    symbols = _symbols(model, shape, options)
    vocab_tokens = symbols["vocab_tokens"]
    ways = Ways.of(bundle.manifest)
    tokenizer = Tokenizer(
        backend,
        vocab_tokens=vocab_tokens,
        chat_template=_chat_template(bundle),
        words=ways.words,
    )
    eos_ids = _eos_ids(model, tokenizer, bundle)
    blocks = _blocks(shape, settings)
    forward = assemble(
        model,
        shape,
        blocks,
        plain=plain,
        options=options,
        threads=settings.threads,
        max_slots=settings.max_slots,
        adapters=load_adapters(bundle, options.adapters),
    )
    target = Target(
        bundle=bundle,
        vocabulary=backend.get_vocab(),
        vocab_tokens=vocab_tokens,
        blocks=blocks,
        block_tokens=shape.block_tokens,
    )
    drafting = load_drafting(target, options, settings)
    grammars = Grammars(backend, vocab_tokens, eos_ids)
    return GenerationEngine(
        tokenizer=tokenizer,
        conversation=Conversation(ways, grammars),
        runner=forward.runner,
        blocks=_manager(bundle, options, blocks, (forward.cache, *drafting.caches)),
        speculation=drafting.speculation,
        drawer=forward.drawer,
        limits=_limits(symbols, bundle, settings, options),
        eos_ids=eos_ids,
        symbols=symbols,
    )


def _manager(
    bundle: Bundle, options: Options, blocks: int, caches: Sequence[CacheMemory]
) -> BlockManager:
    pool = BlockPool(blocks)
    scope = (bundle.manifest.digest, ABSOLUTE_POSITIONS)
    prefix = PrefixCache(pool, caches[0].block_tokens, scope) if options.prefix_cache else None
    return BlockManager(pool, caches, prefix)


def _device(settings: EngineSettings) -> torch.device:
    device = torch.device(settings.device)
    if device.type not in record.fit.devices:
        raise BundleError(f"generation runs on {', '.join(record.fit.devices)}, not {device.type}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BundleError(f"the deployment asks for {settings.device}, and there is no CUDA device")
    return device


def _symbols(model: PreTrainedModel, shape: KvShape, options: Options) -> Mapping[str, int]:
    """Return what the model really is, in the record's symbols."""
    config: PretrainedConfig = model.config.get_text_config()
    return {
        "layers": shape.layers,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "context_tokens": config.max_position_embeddings,
        "vocab_tokens": config.vocab_size,
        "weight_bytes": weight_bytes(model, options.quantization),
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


def _limits(
    symbols: Mapping[str, int], bundle: Bundle, settings: EngineSettings, options: Options
) -> Limits:
    """Bound the context by the model, by the bundle, and by the memory of one request."""
    state = record.bind(symbols, bundle.manifest.execution.dtype)
    block = symbols["block_tokens"]
    most = {"prompt_tokens": 0, "max_output_tokens": block, "cached_tokens": 0}
    held = settings.state_bytes // state.request_bytes(most, block) * block
    context = bundle.manifest.limits.get("context_tokens", symbols["context_tokens"])
    return Limits(
        context_tokens=min(context, symbols["context_tokens"], held),
        vocab_tokens=symbols["vocab_tokens"],
        adapters={name: number for number, name in enumerate(options.adapters)},
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
