"""From a bundle and a deployment's settings to an engine that is ready to score."""

from __future__ import annotations

from typing import Literal

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.encoders.head import read_head
from headpond_workloads.encoders.load import Loaded, load_encoder
from headpond_workloads.encoders.options import EncoderOptions, options_of
from headpond_workloads.native.memory import give_back_freed
from headpond_workloads.reranking.engine.cross_encoder import CrossEncoder
from headpond_workloads.reranking.engine.engine import RerankingEngine
from headpond_workloads.reranking.engine.late_interaction import LateInteraction
from headpond_workloads.reranking.engine.scorer import Scorer
from headpond_workloads.reranking.items import Description


class RerankingOptions(EncoderOptions):
    """How pairs are scored.

    Attributes:
        scoring: `cross_encoder` reads a pair as one text, with a classification head; `maxsim`
            compares the tokens of two texts that are read apart.
    """

    scoring: Literal["cross_encoder", "maxsim"] = "cross_encoder"


def load(bundle: Bundle, settings: EngineSettings) -> RerankingEngine:
    """Load the bundle's encoder, and what makes scores of what it computes.

    Raises:
        BundleError: The files don't make a model that this engine can serve.
    """
    options = options_of(bundle.manifest, RerankingOptions)
    loaded = load_encoder(bundle, settings, options)
    scorer = _scorer(bundle, options, loaded)
    engine = _engine(bundle, options, scorer, loaded)
    del loaded  # the encoder and the head have their own copies of the weights
    give_back_freed()
    return engine


def _scorer(bundle: Bundle, options: RerankingOptions, loaded: Loaded) -> Scorer:
    config, tokenizer = loaded.config, loaded.tokenizer
    limits = bundle.manifest.limits
    if options.scoring == "maxsim":
        context = 2 * config.context_tokens
        scorer: Scorer = LateInteraction(
            encoder=loaded.encoder,
            tokenizer=tokenizer,
            labels=("similarity",),
            context_tokens=context,
            max_tokens=min(context, limits.get("context_tokens", context)),
        )
        least = 2 * tokenizer.single.tokens + 2
    else:
        if loaded.file is None:
            raise BundleError(
                "a graph gives no scores without the artifact weights, which holds a head; "
                "or use scoring: maxsim",
                param="artifacts",
            )
        context = config.context_tokens
        scorer = CrossEncoder(
            encoder=loaded.encoder,
            tokenizer=tokenizer,
            head=read_head(loaded.file, config),
            labels=config.labels,
            multi_label=config.multi_label,
            context_tokens=context,
            max_tokens=min(context, limits.get("context_tokens", context)),
        )
        least = tokenizer.pair.tokens + 2
    if scorer.max_tokens < least:
        raise BundleError(
            f"{scorer.max_tokens} tokens leave none beside the special ones",
            param="limits.context_tokens",
        )
    return scorer


def _engine(
    bundle: Bundle, options: RerankingOptions, scorer: Scorer, loaded: Loaded
) -> RerankingEngine:
    manifest, encoder = bundle.manifest, loaded.encoder
    return RerankingEngine(
        encoder=encoder,
        scorer=scorer,
        description=Description(
            model=f"{manifest.name}@{manifest.version}",
            digest=manifest.digest,
            dtype=options.quantization or manifest.execution.dtype,
            labels=scorer.labels,
            max_tokens=scorer.max_tokens,
            max_batch_tokens=options.batch_tokens or encoder.batch_tokens,
        ),
        symbols={
            **loaded.symbols,
            "context_tokens": scorer.context_tokens,
            "labels": len(scorer.labels),
        },
    )
