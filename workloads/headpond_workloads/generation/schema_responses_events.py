"""Wire types of a streamed response's events."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, RootModel

from headpond_workloads.generation.schema_logprobs import TokenLogprobs
from headpond_workloads.generation.schema_responses import (
    OutputItem,
    OutputText,
    ReasoningText,
    Response,
)

Part = Annotated[OutputText | ReasoningText, Field(discriminator="type")]


class Event(BaseModel):
    """One event; they are numbered from 0."""

    sequence_number: int = 0


class LifecycleEvent(Event):
    """The response begins, is worked on, or ends: whole, or cut off by a limit."""

    type: Literal[
        "response.created", "response.in_progress", "response.completed", "response.incomplete"
    ]
    response: Response


class ItemEvent(Event):
    """An item of the output begins or is whole."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputItem


class PartEvent(Event):
    """A part of an item begins or is whole."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    item_id: str
    output_index: int
    content_index: int = 0
    part: Part


class TextDeltaEvent(Event):
    """More of what the model says."""

    type: Literal["response.output_text.delta"] = "response.output_text.delta"
    item_id: str
    output_index: int
    content_index: int = 0
    delta: str
    logprobs: list[TokenLogprobs] = Field(default_factory=list)


class TextDoneEvent(Event):
    """All of what the model said."""

    type: Literal["response.output_text.done"] = "response.output_text.done"
    item_id: str
    output_index: int
    content_index: int = 0
    text: str
    logprobs: list[TokenLogprobs] = Field(default_factory=list)


class ReasoningDeltaEvent(Event):
    """More of what the model thinks."""

    type: Literal["response.reasoning_text.delta"] = "response.reasoning_text.delta"
    item_id: str
    output_index: int
    content_index: int = 0
    delta: str


class ReasoningDoneEvent(Event):
    """All of what the model thought."""

    type: Literal["response.reasoning_text.done"] = "response.reasoning_text.done"
    item_id: str
    output_index: int
    content_index: int = 0
    text: str


class ArgumentsDeltaEvent(Event):
    """More of the arguments of a call."""

    type: Literal["response.function_call_arguments.delta"] = (
        "response.function_call_arguments.delta"
    )
    item_id: str
    output_index: int
    delta: str


class ArgumentsDoneEvent(Event):
    """All arguments of a call."""

    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"
    item_id: str
    output_index: int
    name: str
    arguments: str


AnyEvent = (
    LifecycleEvent
    | ItemEvent
    | PartEvent
    | TextDeltaEvent
    | TextDoneEvent
    | ReasoningDeltaEvent
    | ReasoningDoneEvent
    | ArgumentsDeltaEvent
    | ArgumentsDoneEvent
)


class ResponseEvent(RootModel[Annotated[AnyEvent, Field(discriminator="type")]]):
    """One event of a streamed response; `root.type` says which."""

    @property
    def is_last(self) -> bool:
        """Whether the response is over with this event."""
        return self.root.type in ("response.completed", "response.incomplete")
