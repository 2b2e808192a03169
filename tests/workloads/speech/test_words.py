"""The streaming bundle's real weights: against sherpa-onnx, in any company, in any pieces."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sherpa_onnx  # type: ignore[import-untyped]
import soxr  # type: ignore[import-untyped]

from headpond.bundle.fixtures import check_fixtures
from headpond.bundle.loading import bind, check_symbols
from headpond.bundle.store import Bundle, open_bundle
from headpond.engine import EngineSettings, Quantum
from headpond_workloads.speech.engine.engine import SpeechEngine
from headpond_workloads.speech.engine.front.decoding import Bounds, decode
from headpond_workloads.speech.engine.front.pcm import Samples
from headpond_workloads.speech.engine.load import load
from headpond_workloads.speech.items import Commit, Final, Listening, Reading
from headpond_workloads.speech.record import record
from workloads.speech.conftest import RATE_HZ, Session, noise, quiet

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(300)]

BUNDLE = Path(__file__).parents[3] / "bundles" / "streaming-words"
MANUAL = Listening(endpointing=None, words=True)
STEP = 160 * RATE_HZ // 1000


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    pytest.importorskip("silero_vad")
    return open_bundle(BUNDLE)


@pytest.fixture(scope="module")
def engine(bundle: Bundle) -> SpeechEngine[Any]:
    return load(bundle, EngineSettings(state_bytes=2**28))


@pytest.fixture(scope="module")
def clips(bundle: Bundle) -> list[Samples]:
    """People, at several speeds, loudnesses and in noise, alone and one after another."""
    spoken = []
    for fixture in bundle.manifest.fixtures:
        audio = fixture.given["audio"]
        assert isinstance(audio, str)
        spoken.append(decode(b64decode(audio), RATE_HZ, Bounds(duration_ms=60_000)))
    one, other = spoken
    slow, quick = (
        soxr.resample(one, RATE_HZ, RATE_HZ / speed).astype(np.float32) for speed in (0.9, 1.15)
    )
    loud, faint = 1.5 * other, 0.1 * one
    noisy = one + 0.003 * noise(len(one) / RATE_HZ, seed=3)[: len(one)]
    joined = np.concatenate((other, quiet(500), one))
    return [one, other, slow, quick, np.clip(loud, -1.0, 1.0), faint, noisy, joined]


def finals(heard: list[Reading]) -> list[Final]:
    return [reading for reading in heard if isinstance(reading, Final)]


def streamed(engine: SpeechEngine[Any], sound: Samples, step: int = STEP) -> Final:
    session = Session(engine, MANUAL)
    for at in range(0, len(sound), step):
        session.say(sound[at : at + step])
    (final,) = finals(session.give(Commit()))
    return final


def test_the_bundle_keeps_its_contract(bundle: Bundle, engine: SpeechEngine[Any]) -> None:
    bind(record, bundle.manifest)
    check_symbols(record, bundle.manifest, engine.symbols)
    check_fixtures(record, bundle.manifest, engine.observe)


def test_it_says_what_sherpa_onnx_says(
    bundle: Bundle, engine: SpeechEngine[Any], clips: list[Samples]
) -> None:
    files = {name: str(bundle.files[name]) for name in ("tokens", "encoder", "decoder", "joiner")}
    theirs = sherpa_onnx.OnlineRecognizer.from_transducer(
        **files, num_threads=1, decoding_method="greedy_search"
    )
    said = []
    for clip in clips:
        stream = theirs.create_stream()
        stream.accept_waveform(RATE_HZ, np.concatenate((clip, quiet(500))))
        stream.input_finished()
        while theirs.is_ready(stream):
            theirs.decode_stream(stream)
        said.append(theirs.get_result(stream).strip())
    assert said[1] == "ten of clubs"
    assert len(set(said)) > 3
    assert [streamed(engine, clip).text for clip in clips] == said


def test_pieces_of_any_size_say_the_same(engine: SpeechEngine[Any], clips: list[Samples]) -> None:
    for clip in clips[:2]:
        whole = streamed(engine, clip, len(clip))
        assert whole.words
        for step in (317, STEP, 16_000):
            assert streamed(engine, clip, step) == whole


def test_young_streams_beside_old_ones_say_what_they_say_alone(
    engine: SpeechEngine[Any], clips: list[Samples]
) -> None:
    expected = [streamed(engine, clip) for clip in clips]
    sessions = [Session(engine, MANUAL) for _ in clips]
    heard: list[list[Reading]] = [[] for _ in clips]
    busy: set[int] = set()  # those that have more to do without being fed
    for now in range(2 * len(clips) + max(map(len, clips)) // STEP + 9):
        together = []
        for number, clip in enumerate(clips):
            at = (now - 2 * number) * STEP  # each begins two steps after the one before
            if not 0 <= at < len(clip):
                if number in busy:
                    together.append(number)
                continue
            given = sessions[number].sounds(clip[at : at + STEP])[:1]
            engine.feed(
                sessions[number].slot, [*given, *([Commit()] if at + STEP >= len(clip) else [])]
            )
            together.append(number)
        if not together:
            continue
        steps = engine.step([Quantum(slot=sessions[each].slot, units=160) for each in together])
        for number, progress in zip(together, steps, strict=True):
            assert progress.error is None
            heard[number] += progress.outputs
        busy = {number for number, each in zip(together, steps, strict=True) if not each.idle}
    found = [final for readings in heard for final in finals(readings)]
    # Equal to the bit: texts, times, and how sure it is.
    assert found == expected


def test_a_commit_goes_on_with_the_next_utterance(
    engine: SpeechEngine[Any], clips: list[Samples]
) -> None:
    session = Session(engine, MANUAL)
    texts = []
    for clip in clips:
        session.say(clip)
        texts += [final.text for final in finals(session.give(Commit()))]
    assert texts == [streamed(engine, clip).text for clip in clips]
