"""From a bundle's options to what makes its drafts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tokenizers import Tokenizer

from headpond.bundle.store import Bundle, open_bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.generation.engine.assembly import assemble, open_model
from headpond_workloads.generation.engine.draft_model import DraftModel
from headpond_workloads.generation.engine.forward import CacheMemory
from headpond_workloads.generation.engine.options import DraftBundle, Options, options_of
from headpond_workloads.generation.engine.reading import Reading
from headpond_workloads.generation.engine.speculation import Drafter, PromptLookup, Speculation


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a drafter has to fit.

    Attributes:
        bundle: The target's; a draft bundle's location is relative to its folder.
        reading: What the target is.
        blocks: Blocks of its cache.
        block_tokens: Tokens of each.
    """

    bundle: Bundle
    reading: Reading
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
    options = options_of(bundle.manifest)
    whole = replace(settings, tensor_parallel=1)  # it is small
    opened = open_model(bundle, options, whole, target.block_tokens)
    if _tokens(opened.reading) != _tokens(target.reading):
        raise BundleError(
            f"the draft bundle {bundle.manifest.ref} has other tokens than its target",
            param="execution.options.speculation.bundle",
        )
    forward = assemble(opened, target.blocks, options)
    return DraftModel(
        forward.runner,
        forward.cache,
        blocks=target.blocks,
        context_tokens=opened.reading.context_tokens,
    )


def _tokens(reading: Reading) -> tuple[dict[str, int], int]:
    """Return a model's tokens, and the rows of its embedding."""
    return Tokenizer.from_str(reading.tokenizer.backend).get_vocab(), reading.vocab_tokens
