"""From a bundle and a deployment's settings to an engine that is ready to embed."""

from __future__ import annotations

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.embedding.engine.engine import EmbeddingEngine
from headpond_workloads.embedding.engine.sentence import Sentences, read_sentences
from headpond_workloads.embedding.engine.texts import Texts
from headpond_workloads.embedding.items import Description
from headpond_workloads.encoders.load import Loaded, load_encoder
from headpond_workloads.encoders.options import EncoderOptions, options_of
from headpond_workloads.native.memory import give_back_freed


def load(bundle: Bundle, settings: EngineSettings) -> EmbeddingEngine:
    """Load the bundle's encoder, and what makes vectors of what it computes.

    Raises:
        BundleError: The files don't make a model that this engine can serve.
    """
    options = options_of(bundle.manifest, EncoderOptions)
    sentences = read_sentences(bundle)
    engine = _engine(bundle, options, sentences, load_encoder(bundle, settings, options))
    give_back_freed()
    return engine


def _engine(
    bundle: Bundle, options: EncoderOptions, sentences: Sentences, loaded: Loaded
) -> EmbeddingEngine:
    manifest, config, encoder = bundle.manifest, loaded.config, loaded.encoder
    context = config.context_tokens
    texts = Texts(
        tokenizer=loaded.tokenizer,
        sentences=sentences,
        max_tokens=min(context, manifest.limits.get("context_tokens", context)),
    )
    if texts.max_tokens <= loaded.tokenizer.single.tokens:
        raise BundleError(
            f"{texts.max_tokens} tokens leave none beside the special ones",
            param="limits.context_tokens",
        )
    return EmbeddingEngine(
        encoder=encoder,
        texts=texts,
        description=Description(
            model=f"{manifest.name}@{manifest.version}",
            digest=manifest.digest,
            dtype=options.quantization or manifest.execution.dtype,
            pooling=sentences.pooling,
            dimensions=config.hidden,
            max_tokens=texts.max_tokens,
            max_batch_tokens=options.batch_tokens or encoder.batch_tokens,
            prompts=tuple(sentences.prompts),
        ),
        symbols={**loaded.symbols, "context_tokens": context, "dimensions": config.hidden},
    )
