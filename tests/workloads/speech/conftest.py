"""Recognisers of random weights, and engines whose ears and words are scripted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torchaudio.models.rnnt import emformer_rnnt_model  # type: ignore[import-untyped]

from headpond.engine import Quantum
from headpond_workloads.speech.engine.engine import SpeechEngine
from headpond_workloads.speech.engine.front.pcm import Samples
from headpond_workloads.speech.engine.front.voice import Voice, VoiceState
from headpond_workloads.speech.engine.recogniser import Hypothesis, Portion
from headpond_workloads.speech.engine.slot import Slot
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
from headpond_workloads.speech.items import (
    Encoding,
    End,
    Format,
    Input,
    Listening,
    Reading,
    Sound,
    Stream,
    Word,
)
from workloads.speech import networks

RATE_HZ = 16_000
CHUNK_MS = 96


def transducer(folder: Path) -> StreamingRecogniser[Any]:
    files = networks.write_transducer(folder)
    vocabulary = Vocabulary(files["tokens"])
    encoder, decoder, joiner = (
        OnnxSession(files[name], name, 1) for name in ("encoder", "decoder", "joiner")
    )
    search = TransducerSearch(
        OnnxPredictor(decoder), OnnxJoiner(joiner), vocabulary.silent | {BLANK}
    )
    return _recogniser(Network(encoder=OnnxEncoder(encoder), search=search, weight_bytes=1), files)


def ctc(folder: Path) -> StreamingRecogniser[Any]:
    files = networks.write_ctc(folder)
    encoder = OnnxEncoder(OnnxSession(files["model"], "model", 1))
    return _recogniser(Network(encoder=encoder, search=CtcSearch(), weight_bytes=1), files)


def emformer(folder: Path) -> StreamingRecogniser[Any]:
    given = {
        "input_dim": 80,
        "encoding_dim": 16,
        "num_symbols": networks.VOCAB + 1,
        "segment_length": 16,
        "right_context_length": 4,
        "time_reduction_input_dim": 16,
        "time_reduction_stride": 4,
        "transformer_num_heads": 2,
        "transformer_ffn_dim": 32,
        "transformer_num_layers": 2,
        "transformer_dropout": 0.0,
        "transformer_activation": "gelu",
        "transformer_left_context_length": 6,
        "transformer_max_memory_size": 2,
        "transformer_weight_init_scale_strategy": "depthwise",
        "transformer_tanh_on_mem": True,
        "symbol_embedding_dim": 16,
        "num_lstm_layers": 2,
        "lstm_layer_norm": True,
        "lstm_layer_norm_epsilon": 1e-3,
        "lstm_dropout": 0.0,
    }
    torch.manual_seed(1)
    model = emformer_rnnt_model(**given)
    with torch.no_grad():
        # Untrained, it would say one thing all the time.
        model.joiner.linear.weight.mul_(20.0)
    save_file(model.state_dict(), folder / "weights.safetensors")
    (folder / "config.json").write_text(json.dumps(given), encoding="utf-8")
    loaded = load_emformer(folder / "weights.safetensors", folder / "config.json")
    files = {"tokens": networks.write_tokens(folder)}
    search = TransducerSearch(
        EmformerPredictor(loaded), EmformerJoiner(loaded), frozenset({0, 1, 2, loaded.blank})
    )
    network = Network(encoder=EmformerEncoder(loaded), search=search, weight_bytes=1)
    return _recogniser(network, files)


def _recogniser(network: Network[Any], files: dict[str, Path]) -> StreamingRecogniser[Any]:
    vocabulary = Vocabulary(files["tokens"])
    return StreamingRecogniser(network, vocabulary, language="en", longest_ms=60_000, tail_ms=320)


RECOGNISERS: dict[str, Callable[[Path], StreamingRecogniser[Any]]] = {
    "transducer": transducer,
    "ctc": ctc,
    "emformer": emformer,
}


@pytest.fixture(params=sorted(RECOGNISERS))
def recogniser(request: pytest.FixtureRequest, tmp_path: Path) -> StreamingRecogniser[Any]:
    return RECOGNISERS[request.param](tmp_path)


def noise(seconds: float, seed: int) -> Samples:
    """Noise that grows and fades, so that random networks have something to tell apart."""
    rng = np.random.default_rng(seed)
    count = int(seconds * RATE_HZ)
    swell = 0.1 * (1.1 + np.sin(np.arange(count) * rng.uniform(5, 20) / RATE_HZ))
    return (rng.standard_normal(count) * swell).astype(np.float32)


@dataclass(eq=False, slots=True)
class Counted:
    """How much sound an utterance had."""

    listening: Listening
    live: bool
    samples: int = 0
    loudest: float = 0.0


@dataclass
class Counter:
    """A recogniser that says how much it heard: `3+2` are two portions of that many ms."""

    kind: Literal["chunked"] = "chunked"
    rate_hz: int = RATE_HZ
    longest_ms: int = 10_000
    state_bytes: int = 100
    weight_bytes: int = 100
    poisoned: float = 2.0
    batches: list[int] = field(default_factory=list)

    def check(self, listening: Listening) -> None:
        del listening

    def fresh(self, listening: Listening, *, live: bool) -> Counted:
        return Counted(listening, live)

    def lacks(self, state: Counted) -> None:
        del state

    def advance(self, portions: Sequence[Portion[Counted]]) -> list[Hypothesis | None]:
        if any(np.any(np.abs(each.samples) >= self.poisoned) for each in portions):
            raise RuntimeError("the network broke")
        self.batches.append(len(portions))
        return [self._said(each) for each in portions]

    def _said(self, portion: Portion[Counted]) -> Hypothesis:
        portion.state.samples += len(portion.samples)
        ms = portion.state.samples * 1000 // RATE_HZ
        text = f"{ms} ms"
        word = Word(text, 0, ms, 0.5)
        if not portion.last:
            return Hypothesis(text=text)
        words = (word,) if portion.state.listening.words else ()
        return Hypothesis(text=text, stable=len(text), words=words, confidence=0.5)


class Loudness:
    """Hears speech where it is loud."""

    window = 32 * RATE_HZ // 1000

    def initial(self) -> VoiceState:
        return VoiceState(np.zeros((2, 1), np.float32), np.zeros(0, np.float32))

    def probabilities(
        self, chunks: Sequence[Samples], states: Sequence[VoiceState]
    ) -> list[list[float]]:
        found = []
        for chunk, state in zip(chunks, states, strict=True):
            sound = np.concatenate((state.rest, chunk))
            count = len(sound) // self.window
            state.rest = sound[count * self.window :]
            windows = sound[: count * self.window].reshape(count, self.window)
            found.append([1.0 if np.abs(each).max() > 0.1 else 0.0 for each in windows])
        return found


Engine = SpeechEngine[Any]


def engine_with(recogniser: Any, *, chunk_ms: int = CHUNK_MS, most_ms: int = 60_000) -> Engine:
    voice = cast("Voice", Loudness())
    return SpeechEngine(recogniser, voice, chunk_ms=chunk_ms, most_ms=most_ms, symbols={})


def loud(ms: int) -> Samples:
    return np.full(ms * RATE_HZ // 1000, 0.5, np.float32)


def quiet(ms: int) -> Samples:
    return np.zeros(ms * RATE_HZ // 1000, np.float32)


FLOATS = Format(encoding=Encoding.FLOAT32, rate_hz=RATE_HZ)


class Session:
    """One live stream on an engine, stepped alone."""

    def __init__(
        self,
        engine: Engine,
        listening: Listening | None = None,
        form: Format = FLOATS,
    ) -> None:
        self.engine = engine
        self.slot: Slot[Any] = engine.start(engine.plan(Stream(form, listening or Listening()), ""))
        self.finished: int | None = None
        self.units = 0
        self.chunk_ms = engine.symbols.get("chunk_ms", CHUNK_MS)

    def sounds(self, samples: Samples) -> list[Input]:
        return [Sound(samples.tobytes()), End()]

    def say(self, *sounds: Samples) -> list[Reading]:
        return self.give(Sound(np.concatenate(sounds).tobytes()))

    def end(self) -> list[Reading]:
        return self.give(End())

    def give(self, *inputs: Input) -> list[Reading]:
        """Feed, and step until the slot is idle or done."""
        self.engine.feed(self.slot, inputs)
        heard: list[Reading] = []
        while True:
            (progress,) = self.engine.step([Quantum(slot=self.slot, units=1)])
            if progress.error is not None:
                raise progress.error
            assert 0 <= progress.units <= self.chunk_ms
            self.units += progress.units
            heard += progress.outputs
            if progress.finished is not None:
                self.finished = progress.finished["audio_ms"]
            if progress.idle or progress.finished is not None:
                return heard
