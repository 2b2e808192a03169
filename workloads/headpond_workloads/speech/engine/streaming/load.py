"""From a bundle to a streaming model that is ready to hear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headpond.bundle.store import Bundle
from headpond.errors import BundleError
from headpond_workloads.speech.engine.options import (
    Options,
    inputs_of,
    outputs_of,
)
from headpond_workloads.speech.engine.streaming.ctc import CtcSearch
from headpond_workloads.speech.engine.streaming.emformer import (
    EmformerEncoder,
    EmformerJoiner,
    EmformerPredictor,
    load_emformer,
)
from headpond_workloads.speech.engine.streaming.network import Network
from headpond_workloads.speech.engine.streaming.onnx_encoder import OnnxEncoder
from headpond_workloads.speech.engine.streaming.onnx_session import OnnxSession
from headpond_workloads.speech.engine.streaming.onnx_transducer import (
    BLANK,
    OnnxJoiner,
    OnnxPredictor,
)
from headpond_workloads.speech.engine.streaming.recogniser import StreamingRecogniser
from headpond_workloads.speech.engine.streaming.transducer import TransducerSearch
from headpond_workloads.speech.engine.streaming.vocabulary import Vocabulary


def load_streaming(bundle: Bundle, options: Options, threads: int) -> StreamingRecogniser[Any]:
    """Load a bundle's streaming model.

    Raises:
        BundleError: The files don't make one.
    """
    if options.kind != "streaming":
        raise BundleError("this model hears each sample once: its kind is streaming",
                          param="execution.options.kind")  # fmt: skip
    inputs, outputs = inputs_of(bundle.manifest), outputs_of(bundle.manifest)
    vocabulary = Vocabulary(bundle.artifact(inputs.tokenizer, "input.tokenizer"))
    build = _BUILDERS[bundle.manifest.execution.architecture]
    return StreamingRecogniser(
        build(bundle, vocabulary, threads),
        vocabulary,
        language=outputs.language,
        longest_ms=options.longest_ms,
        tail_ms=options.tail_ms,
    )


def _session(bundle: Bundle, name: str, threads: int) -> OnnxSession:
    return OnnxSession(bundle.artifact(name), name, threads)


def _onnx_transducer(bundle: Bundle, vocabulary: Vocabulary, threads: int) -> Network[Any]:
    parts = [_session(bundle, name, threads) for name in ("encoder", "decoder", "joiner")]
    encoder, decoder, joiner = parts
    search = TransducerSearch(
        OnnxPredictor(decoder), OnnxJoiner(joiner), vocabulary.silent | {BLANK}
    )
    return Network(
        encoder=OnnxEncoder(encoder),
        search=search,
        weight_bytes=sum(part.bytes for part in parts),
    )


def _onnx_ctc(bundle: Bundle, vocabulary: Vocabulary, threads: int) -> Network[Any]:
    del vocabulary
    model = _session(bundle, "model", threads)
    return Network(encoder=OnnxEncoder(model), search=CtcSearch(), weight_bytes=model.bytes)


def _emformer(bundle: Bundle, vocabulary: Vocabulary, threads: int) -> Network[Any]:
    del threads  # torch's own, set for the process
    config = inputs_of(bundle.manifest).config or "config"
    emformer = load_emformer(bundle.artifact("weights"), bundle.artifact(config, "input.config"))
    search = TransducerSearch(
        EmformerPredictor(emformer),
        EmformerJoiner(emformer),
        vocabulary.silent | {emformer.blank},
    )
    return Network(
        encoder=EmformerEncoder(emformer), search=search, weight_bytes=emformer.weight_bytes
    )


_BUILDERS: Mapping[str, Callable[[Bundle, Vocabulary, int], Network[Any]]] = {
    "OnnxTransducer": _onnx_transducer,
    "OnnxCtc": _onnx_ctc,
    "EmformerRNNT": _emformer,
}
STREAMING = frozenset(_BUILDERS)
"""Architectures of this kind."""
