"""Subtitles that players read, and people too."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headpond_workloads.speech.dialect_subtitles import (
    MAX_CUE_CHARACTERS,
    MAX_CUE_MS,
    cues,
    srt,
    vtt,
)
from headpond_workloads.speech.items import Final, Word

ONE = Final(0, "hello there", 0, 1_250)
TWO = Final(1, "a <b> & c\n\nd", 3_661_007, 3_662_000)


def test_srt() -> None:
    assert srt([ONE, TWO]) == (
        "1\n00:00:00,000 --> 00:00:01,250\nhello there\n\n"
        "2\n01:01:01,007 --> 01:01:02,000\na <b> & c d\n"
    )


def test_vtt() -> None:
    assert vtt([ONE, TWO]) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.250\nhello there\n\n"
        "01:01:01.007 --> 01:01:02.000\na &lt;b&gt; &amp; c d\n"
    )


def test_an_utterance_whose_words_are_others_stays_whole() -> None:
    odd = Final(0, "hello there " * 20, 0, 20_000, words=(Word("other", 0, 20_000, None),))
    (cue,) = cues([odd])
    assert cue.text == " ".join(odd.text.split())


@given(st.lists(st.tuples(st.from_regex(r"\A[a-z]{1,12}\Z"), st.integers(1, 2_000)), min_size=1))
def test_long_utterances_are_cut_between_words(spoken: list[tuple[str, int]]) -> None:
    words, at_ms = [], 500
    for text, length_ms in spoken:
        words.append(Word(text, at_ms, at_ms + length_ms, None))
        at_ms += length_ms
    final = Final(0, " ".join(text for text, _ in spoken), 500, at_ms, words=tuple(words))
    found = list(cues([final]))
    assert " ".join(cue.text for cue in found) == final.text
    assert (found[0].start_ms, found[-1].end_ms) == (500, at_ms)
    for cue in found:
        assert cue.start_ms <= cue.end_ms <= cue.start_ms + MAX_CUE_MS
        assert len(cue.text) <= MAX_CUE_CHARACTERS
    for before, after in pairwise(found):
        assert before.end_ms <= after.start_ms
