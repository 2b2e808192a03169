"""TEI's dialect of reranking and of classification."""

from __future__ import annotations

from typing import Any

import pytest

from exchanges import answer, app_over, get, post, read, scripted, scripted_events
from headpond.call import Ended, Event, Failed
from headpond.errors import EngineFailed
from headpond.units import Work
from headpond_workloads.encoders.items import DescribeItem
from headpond_workloads.reranking.items import Description, PairItem, Score
from headpond_workloads.reranking.record import record

RANKS = Description(
    model="pond@1",
    digest="0123",
    dtype="float32",
    labels=("relevance",),
    max_tokens=512,
    max_batch_tokens=1024,
)
MOODS = Description(
    model="pond@1",
    digest="0123",
    dtype="float32",
    labels=("sad", "glad"),
    max_tokens=512,
    max_batch_tokens=1024,
)
LOW = Score(logits=(-2.0,), scores=(0.1,), tokens=3)
HIGH = Score(logits=(4.0,), scores=(0.9,), tokens=3)
GLAD = Score(logits=(-1.0, 2.0), scores=(0.05, 0.95), tokens=3)
SAD = Score(logits=(2.0, -1.0), scores=(0.95, 0.05), tokens=3)


def body(path: str, *found: object, **fields: object) -> Any:
    return answer(read(record, path, **fields), *found)


def pairs(path: str, **fields: object) -> list[PairItem]:
    found = read(record, path, **fields).ask().items
    return [item for item in found if isinstance(item, PairItem)]


def test_the_best_comes_first() -> None:
    fields = {"query": "q", "texts": ["a", "b"]}
    assert body("/rerank", LOW, HIGH, **fields) == [
        {"index": 1, "score": 0.9},
        {"index": 0, "score": 0.1},
    ]
    assert body("/rerank", LOW, HIGH, **fields, raw_scores=True, return_text=True) == [
        {"index": 1, "text": "b", "score": 4.0},
        {"index": 0, "text": "a", "score": -2.0},
    ]


@pytest.mark.parametrize(
    ("fields", "truncate", "keep_start"),
    [
        ({}, False, True),
        ({"truncate": None}, False, True),
        ({"truncate": True}, True, True),
        ({"truncate": True, "truncation_direction": "Left"}, True, False),
        ({"truncate": True, "truncation_direction": "right"}, True, True),
    ],
)
def test_truncation(fields: dict[str, object], truncate: bool, keep_start: bool) -> None:
    (ranked,) = pairs("/rerank", query="q", texts=["a"], **fields)
    (predicted,) = pairs("/predict", inputs="a", **fields)
    for item in (ranked, predicted):
        assert (item.truncate, item.keep_start) == (truncate, keep_start)


def sequence(query: str, document: str | None, param: str) -> PairItem:
    return PairItem(query=query, document=document, truncate=False, param=param)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("a", [sequence("a", None, "inputs")]),
        (["a"], [sequence("a", None, "inputs")]),
        (["a", "b"], [sequence("a", "b", "inputs")]),
        ([["a"]], [sequence("a", None, "inputs.0")]),
        (
            [["a"], ["b", "c"]],
            [sequence("a", None, "inputs.0"), sequence("b", "c", "inputs.1")],
        ),
    ],
)
def test_two_texts_are_one_pair(inputs: object, expected: list[PairItem]) -> None:
    ask = read(record, "/predict", inputs=inputs).ask()
    assert ask.items == (*expected, DescribeItem())


def test_labels_of_one_sequence() -> None:
    assert body("/predict", GLAD, MOODS, inputs=["a", "b"]) == [
        {"score": 0.95, "label": "glad"},
        {"score": 0.05, "label": "sad"},
    ]
    assert body("/predict", SAD, MOODS, inputs="a", raw_scores=True) == [
        {"score": 2.0, "label": "sad"},
        {"score": -1.0, "label": "glad"},
    ]


def test_labels_of_a_batch() -> None:
    found = body("/predict", GLAD, SAD, MOODS, inputs=[["a"], ["b", "c"]])
    assert [[each["label"] for each in labels] for labels in found] == [
        ["glad", "sad"],
        ["sad", "glad"],
    ]
    assert body("/predict", HIGH, RANKS, inputs=[["a"]]) == [[{"score": 0.9, "label": "relevance"}]]


@pytest.mark.parametrize(
    ("description", "kind"),
    [
        (
            RANKS,
            {"reranker": {"id2label": {"0": "relevance"}, "label2id": {"relevance": 0}}},
        ),
        (
            MOODS,
            {
                "classifier": {
                    "id2label": {"0": "sad", "1": "glad"},
                    "label2id": {"sad": 0, "glad": 1},
                }
            },
        ),
    ],
)
async def test_info(description: Description, kind: dict[str, object]) -> None:
    status, found = await get(app_over(record, scripted(record, description)), "/info")
    assert (status, found["model_type"]) == (200, kind)
    assert (found["model_id"], found["max_input_length"]) == ("pond@1", 512)


@pytest.mark.parametrize(
    ("path", "fields", "status", "kind"),
    [
        ("/rerank", {"query": "q", "texts": []}, 400, "Empty"),
        ("/rerank", {"query": "", "texts": ["a"]}, 400, "Empty"),
        ("/rerank", {"query": "q", "texts": "a"}, 422, "Validation"),
        ("/rerank", {"texts": ["a"]}, 422, "Validation"),
        ("/rerank", {"query": "q", "texts": ["a"] * 2049}, 413, "Validation"),
        ("/predict", {"inputs": ""}, 400, "Empty"),
        ("/predict", {"inputs": [["a"], [""]]}, 400, "Empty"),
        ("/predict", {"inputs": []}, 400, "Empty"),
        ("/predict", {"inputs": [[]]}, 400, "Empty"),
        ("/predict", {"inputs": [["a"], []]}, 400, "Empty"),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, "Validation"),
        ("/predict", {"inputs": [["a", "b", "c"]]}, 422, "Validation"),
        ("/predict", {"inputs": [["a"], "b"]}, 422, "Validation"),
        ("/predict", {"inputs": ["a", ["b"]]}, 422, "Validation"),
        ("/predict", {"inputs": 5}, 422, "Validation"),
        ("/predict", {"inputs": [["a"]] * 2048}, 413, "Validation"),
    ],
)
async def test_bad_requests(path: str, fields: dict[str, object], status: int, kind: str) -> None:
    backend = scripted(record, LOW)
    answered, found = await post(app_over(record, backend), path, **fields)
    assert (answered, found["error_type"], set(found)) == (status, kind, {"error", "error_type"})
    assert not backend.calls


async def test_a_model_of_several_labels_does_not_rank() -> None:
    app = app_over(record, scripted(record, GLAD))
    status, found = await post(app, "/rerank", query="q", texts=["a"])
    assert (status, found["error_type"]) == (422, "Validation")
    assert "2 labels" in found["error"]


@pytest.mark.parametrize("at", [0, 1])
async def test_a_failed_sequence_is_named(at: int) -> None:
    failed: list[Event] = [Failed(at, EngineFailed("broke")), Ended(Work())]
    app = app_over(record, scripted_events(record, failed))
    status, found = await post(app, "/predict", inputs="a")
    named = "inputs: broke" if at == 0 else "broke"
    assert (status, found) == (424, {"error": named, "error_type": "Backend"})
