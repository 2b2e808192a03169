"""From a bundle and a deployment's settings to an engine that is ready to step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.generation.engine.assembly import assemble, open_model
from headpond_workloads.generation.engine.block_manager import BlockManager
from headpond_workloads.generation.engine.blocks import BlockPool
from headpond_workloads.generation.engine.conversation import Conversation, Ways
from headpond_workloads.generation.engine.core import Core
from headpond_workloads.generation.engine.drafting import Target, load_drafting
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.forward import CacheMemory
from headpond_workloads.generation.engine.forward_core import ForwardCore
from headpond_workloads.generation.engine.grammar import Grammars
from headpond_workloads.generation.engine.kv_shape import KvShape
from headpond_workloads.generation.engine.limits import Limits
from headpond_workloads.generation.engine.options import Engine, Options, options_of
from headpond_workloads.generation.engine.prefix import ABSOLUTE_POSITIONS, PrefixCache
from headpond_workloads.generation.engine.reading import Reading
from headpond_workloads.generation.engine.tokenizer import Tokenizer
from headpond_workloads.generation.engine.vllm.core import VllmMemory
from headpond_workloads.generation.engine.vllm.load import open_vllm, read_for_vllm
from headpond_workloads.generation.record import record
from headpond_workloads.native.memory import give_back_freed

BLOCK_TOKENS: Mapping[Engine, int] = {"headpond": 16, "vllm": 32}
"""Tokens of a KV block, unless the bundle's model section says otherwise. vLLM takes no smaller
ones on a CPU."""


def load(bundle: Bundle, settings: EngineSettings) -> GenerationEngine:
    """Load the bundle's model onto the device and size its KV cache to the memory given.

    Raises:
        BundleError: The files don't make a model that this engine can serve.
    """
    _check_device(settings)
    options = options_of(bundle.manifest)
    block_tokens = bundle.manifest.model.get("block_tokens", BLOCK_TOKENS[options.engine])
    vllm = options.engine == "vllm"
    opened = None if vllm else open_model(bundle, options, settings, block_tokens)
    reading = read_for_vllm(bundle, options) if opened is None else opened.reading
    symbols = _symbols(reading, block_tokens, options)
    ways = Ways.of(bundle.manifest)
    tokenizer = Tokenizer(
        reading.tokenizer,
        vocab_tokens=reading.vocab_tokens,
        chat_template=_chat_template(bundle),
        words=ways.words,
    )
    eos_ids = _stop_ids(tokenizer, bundle) | frozenset(reading.eos_ids)
    limits = _limits(symbols, bundle, settings, options)
    blocks = _blocks(reading.kv_shape(block_tokens), settings)
    target = Target(bundle=bundle, reading=reading, blocks=blocks, block_tokens=block_tokens)
    if opened is None:
        core: Core = open_vllm(target, options, settings, limits, tokenizer, eos_ids)
        manager = _manager(bundle, options, blocks, (VllmMemory(block_tokens),))
    else:
        forward = assemble(opened, blocks, options)
        drafting = load_drafting(target, options, settings)
        manager = _manager(bundle, options, blocks, (forward.cache, *drafting.caches))
        core = ForwardCore(forward, manager, drafting.speculation)
    del opened  # which has the texts that all of this was read from
    give_back_freed()
    grammars = Grammars(reading.tokenizer, reading.vocab_tokens, eos_ids)
    return GenerationEngine(
        tokenizer=tokenizer,
        conversation=Conversation(ways, grammars),
        core=core,
        blocks=manager,
        limits=limits,
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


def _check_device(settings: EngineSettings) -> None:
    kind = settings.device.partition(":")[0]
    if kind not in record.fit.devices:
        raise BundleError(f"generation runs on {', '.join(record.fit.devices)}, not {kind}")


def _symbols(reading: Reading, block_tokens: int, options: Options) -> Mapping[str, int]:
    """Return what the model really is, in the record's symbols."""
    return {
        "layers": reading.layers,
        "kv_heads": reading.kv_heads,
        "head_dim": reading.head_dim,
        "context_tokens": reading.context_tokens,
        "vocab_tokens": reading.vocab_tokens,
        "weight_bytes": reading.quantized_bytes(options.quantization),
        "layer_weights": reading.layer_weights,
        "head_weights": reading.head_weights,
        "read_bytes": reading.read_bytes(options.quantization),
        "block_tokens": block_tokens,
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


def _stop_ids(tokenizer: Tokenizer, bundle: Bundle) -> frozenset[int]:
    """Return the tokens that end a sequence because the bundle says so."""
    declared = bundle.manifest.output.get("stop_tokens", [])
    if not isinstance(declared, list) or not all(isinstance(token, str) for token in declared):
        raise BundleError("stop_tokens must be a list of tokens", param="output.stop_tokens")
    names = [token for token in declared if isinstance(token, str)]
    found = tokenizer.control_ids(names)
    if len(found) != len(set(names)):
        raise BundleError(
            f"the tokenizer lacks one of the stop tokens {names}", param="output.stop_tokens"
        )
    return found


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
