"""What two versions of a model are compared by, for every workload that can be compared."""

from __future__ import annotations

from array import array

import pytest

from headpond.engine import Json
from headpond.registry import workload
from headpond_workloads.embedding.items import Embedding
from headpond_workloads.generation.items import TextDelta, ToolCallDelta
from headpond_workloads.reranking.items import Score
from headpond_workloads.speech.items import Final, Heard, Partial
from headpond_workloads.vision.items import Classification, ClassScore

SPLIT = [TextDelta(text="Pa"), TextDelta(text="ris.", finish_reason="stop")]
CALLS = [
    TextDelta(text="", tool_calls=(ToolCallDelta(index=0, name="add", arguments='{"a"'),)),
    TextDelta(text="", tool_calls=(ToolCallDelta(index=0, arguments=": 1}"),)),
]


def said(text: str, calls: list[Json], reasons: list[Json]) -> Json:
    return {"text": text, "reasoning": "", "tool_calls": calls, "finish_reasons": reasons}


@pytest.mark.parametrize(
    ("name", "outputs", "expected"),
    [
        ("generation", SPLIT, said("Paris.", [], ["stop"])),
        ("generation", CALLS, said("", ['add{"a": 1}'], [])),
        (
            "embedding",
            [Embedding(vectors=array("f", [0.5, -2.0]).tobytes(), dimensions=2, tokens=3)],
            [[0.5, -2.0]],
        ),
        ("reranking", [Score(logits=(3.0,), scores=(0.95,), tokens=9)], [[0.95]]),
        (
            "vision",
            [Classification(classes=(ClassScore("espresso", 4, 0.9),), pixels=4)],
            [[["espresso", 0.9]]],
        ),
        (
            "speech",
            [
                Partial(utterance=0, text="go for", stable=2, end_ms=300),
                Final(utterance=0, text="go forward", start_ms=0, end_ms=900),
                Heard(900),
            ],
            ["go forward"],
        ),
    ],
)
def test_outputs_are_compared_by_what_they_mean(
    name: str, outputs: list[object], expected: Json
) -> None:
    compared = workload(name).compared
    assert compared is not None
    assert compared(outputs) == expected


def test_pictures_are_not_compared() -> None:
    assert workload("diffusion").compared is None
