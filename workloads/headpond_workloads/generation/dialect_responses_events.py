"""What happens to the items of a response, as events."""

from __future__ import annotations

from collections.abc import Sequence

from headpond_workloads.generation.dialect_logprobs import entries
from headpond_workloads.generation.dialect_responses_output import OpenItem
from headpond_workloads.generation.items import ChosenToken
from headpond_workloads.generation.schema_responses import OutputText, ReasoningText
from headpond_workloads.generation.schema_responses_events import (
    AnyEvent,
    ArgumentsDeltaEvent,
    ArgumentsDoneEvent,
    ItemEvent,
    PartEvent,
    ReasoningDeltaEvent,
    ReasoningDoneEvent,
    TextDeltaEvent,
    TextDoneEvent,
)


def began(item: OpenItem) -> list[AnyEvent]:
    """Return the events of an item that begins."""
    added = ItemEvent(type="response.output_item.added", output_index=item.index, item=item.begun())
    if item.kind == "function_call":
        return [added]
    part = OutputText(text="") if item.kind == "message" else ReasoningText(text="")
    return [
        added,
        PartEvent(
            type="response.content_part.added",
            item_id=item.item_id,
            output_index=item.index,
            part=part,
        ),
    ]


def grew(item: OpenItem, text: str, logprobs: Sequence[ChosenToken] = ()) -> AnyEvent:
    """Return the event of an item that grows by a text.

    Everything but the number is set, and the text comes after all other strings.
    """
    at, item_id = item.index, item.item_id
    if item.kind == "message":
        return TextDeltaEvent(
            type="response.output_text.delta",
            item_id=item_id,
            output_index=at,
            content_index=0,
            delta=text,
            logprobs=entries(logprobs),
        )
    if item.kind == "reasoning":
        return ReasoningDeltaEvent(
            type="response.reasoning_text.delta",
            item_id=item_id,
            output_index=at,
            content_index=0,
            delta=text,
        )
    return ArgumentsDeltaEvent(
        type="response.function_call_arguments.delta",
        item_id=item_id,
        output_index=at,
        delta=text,
    )


def ended(item: OpenItem) -> list[AnyEvent]:
    """Return the events of an item that ends."""
    whole = ItemEvent(type="response.output_item.done", output_index=item.index, item=item.wire())
    at, item_id = item.index, item.item_id
    if item.kind == "function_call":
        arguments = ArgumentsDoneEvent(
            item_id=item_id, output_index=at, name=item.name, arguments=item.text
        )
        return [arguments, whole]
    if item.kind == "message":
        part: OutputText | ReasoningText = item.part()
        done: AnyEvent = TextDoneEvent(
            item_id=item_id,
            output_index=at,
            text=item.text,
            logprobs=entries(item.logprobs),
        )
    else:
        part = ReasoningText(text=item.text)
        done = ReasoningDoneEvent(item_id=item_id, output_index=at, text=item.text)
    ended_part = PartEvent(
        type="response.content_part.done", item_id=item_id, output_index=at, part=part
    )
    return [done, ended_part, whole]
