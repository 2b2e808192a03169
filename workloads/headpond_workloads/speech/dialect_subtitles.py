"""Subtitles: SubRip and WebVTT, cut so that people can read along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headpond_workloads.speech.items import Final

MAX_CUE_CHARACTERS = 84
MAX_CUE_MS = 7_000

_MS_PER_S, _S_PER_MINUTE, _MINUTES_PER_HOUR = 1000, 60, 60


@dataclass(frozen=True, slots=True)
class Cue:
    """One text on the screen, and when."""

    start_ms: int
    end_ms: int
    text: str


def cues(finals: Iterable[Final]) -> Iterator[Cue]:
    """Iterate over the cues of some utterances.

    Long utterances are cut between words, where the times of words are known.
    """
    for final in finals:
        yield from _cut(final)


def srt(finals: Iterable[Final]) -> str:
    """Return utterances as SubRip."""
    blocks = [
        f"{number}\n{_time(cue.start_ms, ',')} --> {_time(cue.end_ms, ',')}\n{cue.text}\n"
        for number, cue in enumerate(cues(finals), start=1)
    ]
    return "\n".join(blocks)


def vtt(finals: Iterable[Final]) -> str:
    """Return utterances as WebVTT."""
    blocks = [
        f"{_time(cue.start_ms, '.')} --> {_time(cue.end_ms, '.')}\n{_escaped(cue.text)}\n"
        for cue in cues(finals)
    ]
    return "\n".join(["WEBVTT\n", *blocks])


def _cut(final: Final) -> Iterator[Cue]:
    """Iterate over the cues of one utterance; a cue's text is a piece of the utterance's."""
    begins, start_ms, end_ms = 0, final.start_ms, final.start_ms
    reached = 0
    for word in final.words:
        found = final.text.find(word.text, reached)
        if found < 0:  # the words are not those of the text, which then stays whole
            begins, start_ms = 0, final.start_ms
            break
        after = found + len(word.text)
        is_long = after - begins > MAX_CUE_CHARACTERS or word.end_ms - start_ms > MAX_CUE_MS
        if is_long and reached > begins:
            yield _cue(start_ms, end_ms, final.text[begins:found])
            begins, start_ms = found, word.start_ms
        reached, end_ms = after, word.end_ms
    yield _cue(start_ms, final.end_ms, final.text[begins:])


def _cue(start_ms: int, end_ms: int, text: str) -> Cue:
    """Return a cue whose text holds no line breaks, as an empty line would end it."""
    return Cue(start_ms=start_ms, end_ms=max(start_ms, end_ms), text=" ".join(text.split()))


def _time(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, _MS_PER_S)
    minutes, seconds = divmod(seconds, _S_PER_MINUTE)
    hours, minutes = divmod(minutes, _MINUTES_PER_HOUR)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
