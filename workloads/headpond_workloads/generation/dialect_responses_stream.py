"""Streamed responses: named, numbered events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headpond.dialect import ItemEvent as EngineEvent
from headpond.dialect import SseEvent
from headpond.units import Work
from headpond_workloads.generation.chunks import SLOT, ChunkTemplate
from headpond_workloads.generation.dialect_responses_events import began, ended, grew
from headpond_workloads.generation.dialect_responses_output import Happening, OpenItem, Output
from headpond_workloads.generation.items import FinishReason
from headpond_workloads.generation.outcome import UsageCount, deltas
from headpond_workloads.generation.schema import Usage
from headpond_workloads.generation.schema_responses import Response
from headpond_workloads.generation.schema_responses_events import AnyEvent, LifecycleEvent

Render = Callable[[Output, FinishReason | None, Usage | None], Response]
"""Makes the response of an output; without a reason it is in progress."""


class ResponseWriter:
    """Writes a response as it comes; the last event has all of it, and no `[DONE]` follows."""

    def __init__(self, output: Output, render: Render) -> None:
        """Write what becomes of `output`."""
        self._output = output
        self._render = render
        self._count = UsageCount(1)
        self._number = 0
        self._reason: FinishReason = "stop"
        self._growth: _Growth | None = None

    def write(self, events: Sequence[EngineEvent]) -> Sequence[SseEvent]:
        """Render the events of one engine step.

        Raises:
            HeadpondError: The item failed; the stream is to end with an error event.
        """
        written: list[SseEvent] = []
        for _, delta in deltas(events):
            if self._number == 0:
                written += self._begin()
            for happening in self._output.add(delta):
                written += self._happened(happening)
            if delta.finish_reason is not None:
                self._reason = delta.finish_reason
            if delta.usage is not None:
                self._count.add(0, delta.usage)
        return written

    def close(self, work: Work) -> Sequence[SseEvent]:
        """Render the response as a whole."""
        written = [] if self._number else self._begin()
        response = self._render(self._output, self._reason, self._count.total())
        if response.status == "incomplete":
            last = LifecycleEvent(type="response.incomplete", response=response)
        else:
            last = LifecycleEvent(type="response.completed", response=response)
        return [*written, self._event(last)]

    def _begin(self) -> list[SseEvent]:
        response = self._render(self._output, None, None)
        return [
            self._event(LifecycleEvent(type="response.created", response=response)),
            self._event(LifecycleEvent(type="response.in_progress", response=response)),
        ]

    def _happened(self, happening: Happening) -> list[SseEvent]:
        if happening.what == "grew":
            return [self._grew(happening)]
        events = began(happening.item) if happening.what == "began" else ended(happening.item)
        return [self._event(event) for event in events]

    def _grew(self, happening: Happening) -> SseEvent:
        """Render what an item grew by; nearly all such events differ in nothing else."""
        item = happening.item
        if happening.logprobs:
            return self._event(grew(item, happening.text, happening.logprobs))
        if self._growth is None or self._growth.item is not item:
            self._growth = _Growth(item)
        return self._numbered(self._growth.name, self._growth.template.render(happening.text))

    def _event(self, event: AnyEvent) -> SseEvent:
        return self._numbered(event.type, event.model_dump_json(exclude={"sequence_number"}))

    def _numbered(self, name: str, data: str) -> SseEvent:
        number = self._number
        self._number += 1
        return SseEvent(name=name, data=f'{{"sequence_number":{number},{data[1:]}')


class _Growth:
    """What the events look like by which one item grows."""

    def __init__(self, item: OpenItem) -> None:
        event = grew(item, SLOT)
        self.item = item
        self.name: str = event.type
        self.template = ChunkTemplate(event)
