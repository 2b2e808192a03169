"""Where speech begins and ends, as a function of probabilities alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond_workloads.speech.engine.front.endpointing import (
    HYSTERESIS,
    MIN_SPEECH_MS,
    WINDOW_MS,
    Endpointer,
    SpeechStarted,
    SpeechStopped,
)
from headpond_workloads.speech.items import Endpointing

LOUD, QUIET, BETWEEN = 0.9, 0.1, 0.4
Decision = SpeechStarted | SpeechStopped


def hear(ears: Endpointer, *windows: tuple[float, int]) -> list[Decision]:
    found = []
    for probability, count in windows:
        for _ in range(count):
            decision = ears.hear(probability)
            if decision is not None:
                found.append(decision)
    return found


def test_an_utterance_with_padding_and_the_silence_after_it() -> None:
    ears = Endpointer(Endpointing(prefix_padding_ms=100, silence_ms=200))
    found = hear(ears, (QUIET, 10), (LOUD, 20), (QUIET, 20))
    assert found == [
        SpeechStarted(start_ms=320 - 100, speech_ms=320),
        SpeechStopped(end_ms=960 + 224, speech_ms=960),  # 7 windows are the first 200 ms
    ]


def test_a_click_is_no_speech() -> None:
    ears = Endpointer(Endpointing())
    assert not hear(ears, (QUIET, 5), (LOUD, MIN_SPEECH_MS // WINDOW_MS - 1), (QUIET, 40))


def test_a_dip_is_no_silence() -> None:
    ears = Endpointer(Endpointing(silence_ms=100))
    found = hear(ears, (LOUD, 10), (BETWEEN, 50), (QUIET, 2), (LOUD, 10), (QUIET, 1))
    assert [type(each) for each in found] == [SpeechStarted]
    assert ears.speaking


def test_padding_never_reaches_into_the_utterance_before() -> None:
    ears = Endpointer(Endpointing(prefix_padding_ms=1000, silence_ms=64))
    first, stop, second = hear(ears, (LOUD, 3), (QUIET, 2), (LOUD, 3))
    assert isinstance(stop, SpeechStopped)
    assert isinstance(second, SpeechStarted)
    assert (first, second.start_ms) == (SpeechStarted(0, 0), stop.end_ms)


def test_a_long_utterance_is_cut_and_goes_on() -> None:
    ears = Endpointer(Endpointing(), max_utterance_ms=640)
    found = hear(ears, (LOUD, 45))
    assert found[:3] == [
        SpeechStarted(0, 0),
        SpeechStopped(640, 640),
        SpeechStarted(640, 640),
    ]
    assert found[3] == SpeechStopped(1280, 1280)


def test_a_commit_ends_the_utterance_of_now() -> None:
    ears = Endpointer(Endpointing(prefix_padding_ms=500))
    hear(ears, (LOUD, 10), (QUIET, 2))
    assert ears.stop() == SpeechStopped(end_ms=384, speech_ms=320)
    assert ears.stop() is None
    (again,) = hear(ears, (LOUD, 3))
    assert again == SpeechStarted(start_ms=384, speech_ms=384)


def test_what_is_skipped_is_silence() -> None:
    ears = Endpointer(Endpointing(prefix_padding_ms=500))
    hear(ears, (LOUD, 10))
    ears.skip(1000)
    assert not ears.speaking
    assert hear(ears, (LOUD, 3)) == [SpeechStarted(start_ms=1000, speech_ms=1000)]


def test_other_settings_from_here_on() -> None:
    ears = Endpointer(Endpointing(threshold=0.95))
    assert not hear(ears, (LOUD, 10))
    ears.retune(Endpointing(threshold=0.5))
    assert len(hear(ears, (LOUD, 10))) == 1


@given(
    st.builds(
        Endpointing,
        threshold=st.floats(0, 1),
        prefix_padding_ms=st.integers(0, 1000),
        silence_ms=st.integers(0, 1000),
    ),
    st.lists(st.floats(0, 1), max_size=200),
    st.integers(100, 3000),
)
def test_utterances_alternate_and_never_overlap(
    settings: Endpointing, probabilities: list[float], most_ms: int
) -> None:
    ears = Endpointer(settings, max_utterance_ms=most_ms)
    found: list[Decision] = []
    for probability in probabilities:
        decision = ears.hear(probability)
        found += [] if decision is None else [decision]
        assert ears.speaking == (len(found) % 2 == 1)
    assert ears.now_ms == WINDOW_MS * len(probabilities)
    last = ears.stop()
    found += [] if last is None else [last]
    kinds = [isinstance(each, SpeechStarted) for each in found]
    assert kinds == [at % 2 == 0 for at in range(len(found))]
    edges = [each.start_ms if isinstance(each, SpeechStarted) else each.end_ms for each in found]
    assert edges == sorted(edges)
    for begun, ended in pairwise(found):
        if isinstance(begun, SpeechStarted) and isinstance(ended, SpeechStopped):
            assert begun.start_ms <= begun.speech_ms < ended.speech_ms <= ended.end_ms
            longest_ms = max(most_ms, settings.prefix_padding_ms + MIN_SPEECH_MS)
            assert ended.end_ms - begun.start_ms < longest_ms + 2 * WINDOW_MS


@given(st.lists(st.floats(0, 0.5 - HYSTERESIS - 0.01), max_size=100))
def test_silence_decides_nothing(probabilities: list[float]) -> None:
    ears = Endpointer(Endpointing())
    assert not [each for each in probabilities if ears.hear(each) is not None]


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_thresholds_at_the_edge(threshold: float) -> None:
    ears = Endpointer(Endpointing(threshold=threshold, silence_ms=0))
    found = hear(ears, (1.0, 10), (0.0, 10))
    assert isinstance(found[0], SpeechStarted)
