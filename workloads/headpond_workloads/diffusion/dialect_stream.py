"""Streamed pictures: named events, a completed one for each picture, and no `[DONE]`."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from headpond.call import Failed, Output
from headpond.dialect import ItemEvent, SseEvent
from headpond.units import Work
from headpond_workloads.diffusion.dialect_usage import described, usage_of
from headpond_workloads.diffusion.items import Painted, Preview, Started, Stepped
from headpond_workloads.diffusion.schema import (
    CompletedEvent,
    CompletedName,
    PartialEvent,
    PartialName,
    ProgressEvent,
    ProgressName,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EventNames:
    """What the events of one route are called."""

    progress: ProgressName
    partial: PartialName
    completed: CompletedName


GENERATION = EventNames(
    progress="image_generation.progress",
    partial="image_generation.partial_image",
    completed="image_generation.completed",
)
EDIT = EventNames(
    progress="image_edit.progress",
    partial="image_edit.partial_image",
    completed="image_edit.completed",
)


class PictureWriter:
    """Writes what becomes of the pictures of one call."""

    def __init__(self, names: EventNames, *, progress: bool, edits: bool) -> None:
        """Start with nothing painted.

        Args:
            names: What its events are called.
            progress: Whether each step has an event.
            edits: Whether the pictures begin from one of the caller's.
        """
        self._names = names
        self._progress = progress
        self._edits = edits
        self._sizes: dict[int, str] = {}

    def write(self, events: Sequence[ItemEvent]) -> list[SseEvent]:
        """Render the events of one engine step.

        Raises:
            HeadpondError: A picture failed; the stream is to end with an error event.
        """
        written: list[SseEvent] = []
        for event in events:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Output):
                written += self._take(event.item, event.payload)
        return written

    def close(self, work: Work) -> list[SseEvent]:
        """Render nothing: the last picture was the last event."""
        return []

    def _take(self, index: int, payload: object) -> list[SseEvent]:
        match payload:
            case Started(width=width, height=height):
                self._sizes[index] = f"{width}x{height}"
                return []
            case Stepped(step=step, steps=steps) if self._progress:
                return [self._step(index, step, steps)]
            case Preview():
                return [self._preview(index, payload)]
            case Painted():
                return [self._picture(index, payload)]
            case _:
                return []

    def _step(self, index: int, step: int, steps: int) -> SseEvent:
        event = ProgressEvent(type=self._names.progress, index=index, step=step, steps=steps)
        return SseEvent(name=event.type, data=event.model_dump_json())

    def _preview(self, index: int, preview: Preview) -> SseEvent:
        event = PartialEvent(
            type=self._names.partial,
            index=index,
            b64_json=b64encode(preview.content).decode(),
            partial_image_index=preview.index,
            created_at=int(time.time()),
            size=self._sizes[index],
            output_format=preview.medium,
        )
        return SseEvent(name=event.type, data=event.model_dump_json())

    def _picture(self, index: int, picture: Painted) -> SseEvent:
        event = CompletedEvent(
            type=self._names.completed,
            index=index,
            b64_json=b64encode(picture.content).decode(),
            created_at=int(time.time()),
            output_format=picture.medium,
            usage=usage_of([picture], edits=self._edits),
            **described(picture),
        )
        return SseEvent(name=event.type, data=event.model_dump_json())
