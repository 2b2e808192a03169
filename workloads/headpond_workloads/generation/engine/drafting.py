"""From a bundle's options to what makes its drafts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from headpond.bundle.store import Bundle, open_bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.generation.engine.assembly import assemble
from headpond_workloads.generation.engine.draft_model import DraftModel
from headpond_workloads.generation.engine.forward import CacheMemory
from headpond_workloads.generation.engine.kv_cache import KvShape
from headpond_workloads.generation.engine.options import DraftBundle, Options, options_of
from headpond_workloads.generation.engine.probe import plain_logits
from headpond_workloads.generation.engine.speculation import Drafter, PromptLookup, Speculation
from headpond_workloads.generation.engine.weights import load_model, load_tokenizer, model_folder


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a drafter has to fit.

    Attributes:
        bundle: The target's; a draft bundle's location is relative to its folder.
        vocabulary: Its tokens.
        vocab_tokens: Rows of its embedding.
        blocks: Blocks of its cache.
        block_tokens: Tokens of each.
    """

    bundle: Bundle
    vocabulary: dict[str, int]
    vocab_tokens: int
    blocks: int
    block_tokens: int


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """What the engine needs to speculate.

    Attributes:
        speculation: Makes and checks drafts, or None.
        caches: The memory that a draft model needs under the target's block numbers.
    """

    speculation: Speculation | None = None
    caches: tuple[CacheMemory, ...] = ()


def load_drafting(target: Target, options: Options, settings: EngineSettings) -> Drafting:
    """Load what the target's options ask for.

    A draft model's weights and cache come on top of what the target takes.

    Raises:
        BundleError: The draft bundle can't be opened or served, or has other tokens.
    """
    wanted = options.speculation
    if wanted is None:
        return Drafting()
    if isinstance(wanted, DraftBundle):
        draft = open_bundle(target.bundle.root / wanted.bundle)
        model = _load_draft(draft, target, settings)
        drafter: Drafter = model
        caches: tuple[CacheMemory, ...] = (model,)
    else:
        drafter, caches = PromptLookup(wanted.longest_match), ()
    speculation = Speculation(drafter, tokens=wanted.tokens, max_rows=wanted.max_rows)
    return Drafting(speculation=speculation, caches=caches)


def _load_draft(bundle: Bundle, target: Target, settings: EngineSettings) -> DraftModel:
    with model_folder(bundle) as folder:
        model = load_model(folder, bundle, torch.device(settings.device))
        vocabulary = load_tokenizer(folder).get_vocab()
    config = model.config.get_text_config()
    if (vocabulary, config.vocab_size) != (target.vocabulary, target.vocab_tokens):
        raise BundleError(
            f"the draft bundle {bundle.manifest.ref} has other tokens than its target",
            param="execution.options.speculation.bundle",
        )
    forward = assemble(
        model,
        KvShape.of(model, target.block_tokens),
        target.blocks,
        plain=plain_logits(model),
        options=options_of(bundle.manifest),
        threads=settings.threads,
        max_slots=settings.max_slots,
    )
    return DraftModel(
        forward.runner,
        forward.cache,
        blocks=target.blocks,
        context_tokens=config.max_position_embeddings,
        drawer=forward.drawer,
    )
