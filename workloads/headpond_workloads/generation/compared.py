"""What two versions of a language model agree on: what is said, and why it ends."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.engine import Json
from headpond_workloads.generation.items import TextDelta


def compared(outputs: Sequence[object]) -> Json:
    """Return the text of one choice, whole, with its calls of tools; nothing else is text."""
    deltas = [each for each in outputs if isinstance(each, TextDelta)]
    calls: dict[int, str] = {}
    for delta in deltas:
        for call in delta.tool_calls:
            calls[call.index] = calls.get(call.index, "") + (call.name or "") + call.arguments
    reasons: list[Json] = [each.finish_reason for each in deltas if each.finish_reason is not None]
    return {
        "text": "".join(delta.text for delta in deltas),
        "reasoning": "".join(delta.reasoning for delta in deltas),
        "tool_calls": [calls[index] for index in sorted(calls)],
        "finish_reasons": reasons,
    }
