"""From a bundle to a Whisper model that is ready to hear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headpond.bundle.store import Bundle
from headpond.errors import BundleError
from headpond_workloads.speech.engine.options import (
    Options,
    inputs_of,
    outputs_of,
)
from headpond_workloads.speech.engine.whisper.greedy import Controls
from headpond_workloads.speech.engine.whisper.model import Architecture, WhisperModel
from headpond_workloads.speech.engine.whisper.recogniser import Hearing, WhisperRecogniser
from headpond_workloads.speech.engine.whisper.tokens import WhisperTokens
from headpond_workloads.speech.engine.whisper.weights import whisper_weights

_HEAD_WIDTH = 64
"""Of every Whisper model that was published."""


class _Config(BaseModel):
    """What is read of `generation_config.json`, or of CTranslate2's `config.json`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    suppress: Annotated[list[int], Field(alias="suppress_tokens")] = []
    suppress_first: Annotated[list[int], Field(alias="begin_suppress_tokens")] = []
    suppress_ids: list[int] = []
    suppress_ids_begin: list[int] = []
    alignment_heads: Annotated[list[tuple[int, int]], Field(min_length=1)]


def load_whisper(bundle: Bundle, options: Options) -> WhisperRecogniser:
    """Load a bundle's Whisper model.

    Raises:
        BundleError: The files don't make one.
    """
    inputs, outputs = inputs_of(bundle.manifest), outputs_of(bundle.manifest)
    if options.kind != "chunked":
        raise BundleError("Whisper hears whole utterances: its kind is chunked",
                          param="execution.options.kind")  # fmt: skip
    tokens = WhisperTokens(bundle.artifact(inputs.tokenizer, "input.tokenizer"))
    if not tokens.speaks(outputs.language):
        raise BundleError("the model does not know the language", param="output.language")
    config = _config(bundle.artifact(inputs.config or "config", "input.config"))
    path, param = _weights(bundle, options)
    weights = whisper_weights(path, param)
    architecture = Architecture(
        heads=weights.tokens.shape[1] // _HEAD_WIDTH,
        controls=Controls(
            end=tokens.end,
            silence=tokens.silence,
            never=(*config.suppress, *config.suppress_ids),
            not_first=(*config.suppress_first, *config.suppress_ids_begin),
        ),
        alignment_heads=tuple(config.alignment_heads),
    )
    dtype: torch.dtype = getattr(torch, bundle.manifest.execution.dtype)
    hearing = Hearing(
        every_ms=options.hear_every_ms,
        slower=options.hear_slower,
        step_ms=options.step_ms,
    )
    model = WhisperModel(weights, architecture, dtype)
    return WhisperRecogniser(model, tokens, hearing, outputs.language)


def _weights(bundle: Bundle, options: Options) -> tuple[Path, str]:
    if options.checkpoint is not None:
        return options.checkpoint.checked(bundle.root), "execution.options.checkpoint"
    return bundle.artifact("weights"), "artifacts.weights"


def _config(path: Path) -> _Config:
    try:
        return _Config.model_validate(json.loads(path.read_bytes()))
    except (ValueError, ValidationError) as error:
        raise BundleError(
            f"the configuration is not valid: {error}", param="input.config"
        ) from None
