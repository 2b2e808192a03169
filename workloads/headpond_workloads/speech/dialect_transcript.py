"""What a finished file came to, folded from its events.

The text of several utterances is theirs with one space between; those that say nothing
are left out. A streamed transcript is the same text: its deltas, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headpond.call import Failed, Output
from headpond.dialect import ItemEvent
from headpond.units import Work
from headpond_workloads.speech.items import Final, Heard

SPACE = " "


@dataclass(frozen=True, slots=True)
class Transcript:
    """A file's utterances that say something, in order, and how long the file is."""

    finals: tuple[Final, ...]
    duration_ms: int

    @property
    def text(self) -> str:
        """All that was said."""
        return joined(final.text for final in self.finals)

    @property
    def language(self) -> str | None:
        """The language of the first utterance whose language the model could tell."""
        return next((final.language for final in self.finals if final.language), None)


def joined(texts: Iterable[str]) -> str:
    """Return the text of utterances one after the other."""
    return SPACE.join(text for text in texts if text)


def fold(events: Sequence[ItemEvent], work: Work) -> Transcript:
    """Return what the call of one file came to.

    Raises:
        HeadpondError: The file failed.
    """
    finals: list[Final] = []
    duration_ms = work["audio_ms"]
    for event in events:
        if isinstance(event, Failed):
            raise event.error
        if not isinstance(event, Output):
            continue
        if isinstance(event.payload, Final) and event.payload.text:
            finals.append(event.payload)
        elif isinstance(event.payload, Heard):
            duration_ms = event.payload.duration_ms
    return Transcript(finals=tuple(finals), duration_ms=duration_ms)


class Settled:
    """How much of one utterance's text was passed on: only what will not change."""

    def __init__(self) -> None:
        """Begin with nothing passed on."""
        self._characters = 0

    def take(self, text: str, stable: int) -> str:
        """Return what has become stable since the last time."""
        more = text[self._characters : stable]
        self._characters = max(self._characters, stable)
        return more
