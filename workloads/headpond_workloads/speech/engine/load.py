"""From a bundle and a deployment's settings to an engine that is ready to listen."""

from __future__ import annotations

from typing import Any

import torch

from headpond.bundle.store import Bundle
from headpond.engine import EngineSettings
from headpond.errors import BundleError
from headpond_workloads.speech.engine.engine import SpeechEngine
from headpond_workloads.speech.engine.front.voice import Voice
from headpond_workloads.speech.engine.options import inputs_of, options_of
from headpond_workloads.speech.engine.recogniser import Recogniser
from headpond_workloads.speech.engine.streaming.load import STREAMING, load_streaming
from headpond_workloads.speech.engine.whisper.load import load_whisper
from headpond_workloads.speech.record import MAX_AUDIO_MS

AnyRecogniser = Recogniser[Any]
"""A recogniser whose states only it knows."""


def load(bundle: Bundle, settings: EngineSettings) -> SpeechEngine[Any]:
    """Load the bundle's model.

    Raises:
        BundleError: The files don't make a model that this engine can serve.
    """
    torch.set_num_threads(settings.threads)
    manifest = bundle.manifest
    inputs = inputs_of(manifest)
    recogniser = _recogniser(bundle, settings)
    if recogniser.rate_hz != inputs.sample_rate_hz:
        raise BundleError(
            f"the model hears {recogniser.rate_hz} samples a second", param="input.sample_rate_hz"
        )
    chunk_ms = manifest.model.get("chunk_ms", 0)
    if chunk_ms < 1:
        raise BundleError("chunk_ms must be at least 1", param="model.chunk_ms")
    most_ms = min(manifest.limits.get("audio_ms", MAX_AUDIO_MS), MAX_AUDIO_MS)
    return SpeechEngine(
        recogniser,
        Voice(bundle.artifact(inputs.voice, "input.voice"), recogniser.rate_hz),
        chunk_ms=chunk_ms,
        most_ms=most_ms,
        symbols={
            "chunk_ms": chunk_ms,
            "sample_rate_hz": recogniser.rate_hz,
            "state_bytes": recogniser.state_bytes,
            "weight_bytes": recogniser.weight_bytes,
        },
    )


def _recogniser(bundle: Bundle, settings: EngineSettings) -> AnyRecogniser:
    options = options_of(bundle.manifest)
    architecture = bundle.manifest.execution.architecture
    if architecture == "WhisperForConditionalGeneration":
        return load_whisper(bundle, options)
    if architecture in STREAMING:
        return load_streaming(bundle, options, settings.threads)
    raise BundleError(
        f"there is no architecture {architecture!r} of speech", param="execution.architecture"
    )
