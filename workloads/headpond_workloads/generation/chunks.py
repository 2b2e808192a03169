"""Streams of chunks: what chat and completions write alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pydantic import BaseModel
from pydantic_core import to_json

from headpond.dialect import ItemEvent, SseEvent
from headpond.units import Work
from headpond_workloads.generation.items import TextDelta
from headpond_workloads.generation.outcome import UsageCount, deltas
from headpond_workloads.generation.schema import Usage

DONE = SseEvent(data="[DONE]")
SLOT = "\0"
"""Stands for the text while a template is made."""


class ChunkTemplate:
    """The JSON of a chunk around its text, rendered once and reused for each step.

    Nearly all chunks of a stream differ in nothing but their text, and pydantic takes
    several times as long to build and dump the whole model.
    """

    __slots__ = ("_after", "_before")

    def __init__(self, chunk: BaseModel) -> None:
        """Split the JSON of a chunk whose text is `SLOT`, and comes after all other strings."""
        rendered = chunk.model_dump_json(exclude_unset=True)
        self._before, _, self._after = rendered.rpartition(to_json(SLOT).decode())

    def render(self, text: str) -> str:
        """Return the JSON of the chunk with this text."""
        return f"{self._before}{to_json(text).decode()}{self._after}"


class ChunkFrame:
    """What every chunk of a call repeats around its choices."""

    def __init__(self, blank: BaseModel, *, include_usage: bool) -> None:
        """Repeat `blank`, a chunk without choices; usage is null when it comes in the end."""
        self._blank = blank.model_copy(update={"usage": None}) if include_usage else blank

    def choice(self, choice: BaseModel) -> str:
        """Render a chunk with this choice; fields that were not set are left out."""
        return self._with(choices=[choice]).model_dump_json(exclude_unset=True)

    def template(self, choice: BaseModel) -> ChunkTemplate:
        """Return what chunks look like whose choice differs in its text, here `SLOT`."""
        return ChunkTemplate(self._with(choices=[choice]))

    def usage(self, usage: Usage) -> str:
        """Render the chunk without choices that tells the usage."""
        return self._with(usage=usage).model_dump_json(exclude_unset=True)

    def _with(self, **fields: object) -> BaseModel:
        return self._blank.model_copy(update=fields)


class ChunkForm(Protocol):
    """How one dialect writes what the choices of a call come to."""

    def chunks(self, index: int, delta: TextDelta) -> Iterable[str]:
        """Render what a step added to a choice, and after that its end."""
        ...


class ChunkWriter:
    """Writes a call as data-only events, then the usage when asked for, then `[DONE]`."""

    def __init__(
        self, frame: ChunkFrame, form: ChunkForm, *, samples: int, include_usage: bool
    ) -> None:
        """Write chunks of `form` for prompts of `samples` choices each."""
        self._frame = frame
        self._form = form
        self._include_usage = include_usage
        self._count = UsageCount(samples)

    def write(self, events: Sequence[ItemEvent]) -> Sequence[SseEvent]:
        """Render the events of one engine step.

        Raises:
            HeadpondError: An item failed. The dialect cannot end one choice with an error,
                so the stream is to end with an error event.
        """
        written: list[SseEvent] = []
        for index, delta in deltas(events):
            written += [SseEvent(data=chunk) for chunk in self._form.chunks(index, delta)]
            if delta.usage is not None:
                self._count.add(index, delta.usage)
        return written

    def close(self, work: Work) -> Sequence[SseEvent]:
        """Render the usage when asked for, and the end."""
        if not self._include_usage:
            return (DONE,)
        return (SseEvent(data=self._frame.usage(self._count.total())), DONE)
