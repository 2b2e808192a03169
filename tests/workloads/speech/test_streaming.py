"""Streaming recognisers: however sound is cut, and whoever else is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headpond.errors import EngineFailed, InvalidRequest
from headpond_workloads.speech.engine.front.pcm import Samples
from headpond_workloads.speech.engine.recogniser import Hypothesis, Portion
from headpond_workloads.speech.engine.streaming.recogniser import StreamingRecogniser, Utterance
from headpond_workloads.speech.items import Listening
from workloads.speech.conftest import noise

Recogniser = StreamingRecogniser[Any]
LISTENING = Listening(words=True)


def advanced(
    recogniser: Recogniser, portions: Sequence[Portion[Utterance[Any]]]
) -> list[Hypothesis | None]:
    """Go on with all until none can; return what each said last."""
    found: list[Hypothesis | None] = [None] * len(portions)
    going = dict(enumerate(portions))
    while going:
        for at, said in zip(going, recogniser.advance([*going.values()]), strict=True):
            found[at] = said or found[at]
        going = {
            at: replace(portion, samples=portion.samples[:0])
            for at, portion in going.items()
            if recogniser.lacks(portion.state) == 0
        }
    return found


def whole(recogniser: Recogniser, sound: Samples) -> Hypothesis:
    state = recogniser.fresh(LISTENING, live=False)
    (found,) = advanced(recogniser, [Portion(state=state, samples=sound, last=True)])
    assert found is not None
    return found


def said(hypothesis: Hypothesis) -> list[tuple[str, int, int]]:
    return [(word.text, word.start_ms, word.end_ms) for word in hypothesis.words]


def test_a_stream_in_pieces_says_what_the_whole_file_says(recogniser: Recogniser) -> None:
    sound = noise(2.5, seed=1)
    expected = whole(recogniser, sound)
    assert len(expected.text) > 10
    rng = np.random.default_rng(2)
    for most in (30, 700, 9000):
        state = recogniser.fresh(LISTENING, live=True)
        at = 0
        said = ""
        while at < len(sound):
            end = at + int(rng.integers(0, most))
            portion = Portion(state=state, samples=sound[at:end], last=end >= len(sound))
            (found,) = advanced(recogniser, [portion])
            at = end
            if found is not None:
                assert found.text.startswith(said)  # what was said never changes
                said = found.text[: found.stable]
        assert found == expected


def test_streams_of_all_ages_together_say_what_each_says_alone(recogniser: Recogniser) -> None:
    sounds = [noise(seconds, seed) for seed, seconds in enumerate((3.0, 1.2, 2.2, 0.7, 1.9))]
    expected = [whole(recogniser, sound) for sound in sounds]
    step = 1600
    joins = [0, 9, 3, 14, 1]  # the step at which each stream begins
    states: list[Utterance[Any]] = [recogniser.fresh(LISTENING, live=True) for _ in sounds]
    found: dict[int, Hypothesis | None] = {}
    for now in range(40):
        portions, who = [], []
        for stream, sound in enumerate(sounds):
            at = (now - joins[stream]) * step
            if 0 <= at < len(sound):
                last = at + step >= len(sound)
                portions.append(
                    Portion(state=states[stream], samples=sound[at : at + step], last=last)
                )
                who.append((stream, last))
        heard = advanced(recogniser, portions)
        found |= {stream: each for (stream, last), each in zip(who, heard, strict=True) if last}
    for stream, alone in enumerate(expected):
        together = found[stream]
        assert together is not None
        assert said(together) == said(alone)
        # torch's products differ by a rounding when there are more rows; onnxruntime's don't.
        assert together.confidence == pytest.approx(alone.confidence, abs=1e-5)


def test_words_come_in_order_within_the_utterance(recogniser: Recogniser) -> None:
    found = whole(recogniser, noise(2.0, seed=5))
    assert " ".join(word.text for word in found.words) == found.text
    edges = [edge for word in found.words for edge in (word.start_ms, word.end_ms)]
    assert edges == sorted(edges)
    assert all(0.0 < (word.confidence or 0.0) <= 1.0 for word in found.words)


def test_a_failed_step_has_advanced_nobody(
    recogniser: Recogniser, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = noise(1.5, seed=7)
    expected = whole(recogniser, sound)
    state = recogniser.fresh(LISTENING, live=True)
    advanced(recogniser, [Portion(state=state, samples=sound[:8000], last=False)])
    rest = Portion(state=state, samples=sound[8000:], last=True)
    with monkeypatch.context() as patch:
        patch.setattr(recogniser, "_encoded", _broken)
        with pytest.raises(RuntimeError):
            recogniser.advance([rest])
    assert advanced(recogniser, [rest]) == [expected]


def test_a_model_that_computes_nan_has_advanced_nobody(
    recogniser: Recogniser, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = noise(1.5, seed=7)
    expected = whole(recogniser, sound)
    portion = Portion(state=recogniser.fresh(LISTENING, live=True), samples=sound, last=True)
    encode = recogniser._encoder.encode

    def broken(*given: Any) -> tuple[Any, Any]:
        rows, caches = encode(*given)
        return np.full_like(rows, np.nan), caches

    with monkeypatch.context() as patch:
        patch.setattr(recogniser._encoder, "encode", broken)
        with pytest.raises(EngineFailed, match="NaN"):
            recogniser.advance([portion])
    assert advanced(recogniser, [portion]) == [expected]


def test_an_utterance_says_more_as_soon_as_it_has_what_it_lacks(recogniser: Recogniser) -> None:
    sound = noise(2.0, seed=4)
    states = [recogniser.fresh(LISTENING, live=True) for _ in range(2)]
    at = 0
    while at + (lacks := recogniser.lacks(states[0])) <= len(sound):
        samples = sound[at : at + lacks]
        # One sample less is not enough, and nothing is said.
        early = [Portion(state=states[1], samples=samples[:-1], last=False)]
        assert recogniser.advance(early) == [None]
        assert recogniser.lacks(states[1]) == 1
        portions = [
            Portion(state=states[0], samples=samples, last=False),
            Portion(state=states[1], samples=samples[-1:], last=False),
        ]
        first, second = recogniser.advance(portions)
        assert first == second
        at += lacks
    assert at > len(sound) // 2


def _broken(streams: object) -> list[Any]:
    raise RuntimeError("no memory")


def test_an_utterance_of_a_few_samples_says_nothing_wrong(recogniser: Recogniser) -> None:
    for count in (0, 1, 119, 120, 121):
        assert whole(recogniser, noise(1.0, seed=3)[:count]) is not None


def test_languages_that_it_does_not_know_are_refused(recogniser: Recogniser) -> None:
    recogniser.check(Listening(language="en"))
    with pytest.raises(InvalidRequest) as raised:
        recogniser.check(Listening(language="fr"))
    assert raised.value.param == "language"
