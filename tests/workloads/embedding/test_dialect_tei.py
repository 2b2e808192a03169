"""TEI's dialect of embedding."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from exchanges import answer, app_over, get, post, read, scripted, scripted_events
from headpond.call import Ended, Event, Failed
from headpond.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    EngineFailed,
    HeadpondError,
    NotReady,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    WorkerLost,
)
from headpond.units import Work
from headpond_workloads.embedding.items import Description, Embedding, EmbedItem, Truncation
from headpond_workloads.embedding.record import record
from headpond_workloads.encoders.items import DescribeItem

DESCRIPTION = Description(
    model="pond@1",
    digest="0123",
    dtype="float32",
    pooling="mean",
    dimensions=2,
    max_tokens=256,
    max_batch_tokens=512,
    prompts=("query",),
)


def vectors(*rows: tuple[float, float]) -> Embedding:
    values = [value for row in rows for value in row]
    return Embedding(vectors=struct.pack(f"<{len(values)}f", *values), dimensions=2, tokens=1)


def items(path: str, **fields: object) -> list[EmbedItem]:
    found = read(record, path, **fields).ask().items
    return [item for item in found if isinstance(item, EmbedItem)]


def body(path: str, *found: object, **fields: object) -> Any:
    return answer(read(record, path, **fields), *found)


@pytest.mark.parametrize("inputs", ["a", [7, 8], ["a"], [[7, 8]]])
def test_also_one_text_gives_a_list(inputs: object) -> None:
    assert body("/embed", vectors((1, 0)), inputs=inputs) == [[1, 0]]


def test_what_embed_asks_for() -> None:
    (item,) = items("/embed", inputs="a")
    assert item == EmbedItem(text="a", truncation=Truncation.NONE, normalize=True, param="inputs")
    (item,) = items(
        "/embed", inputs=["a"], normalize=False, prompt_name="query", dimensions=2, truncate=True
    )
    assert item == EmbedItem(
        text="a",
        truncation=Truncation.END,
        normalize=False,
        prompt="query",
        dimensions=2,
        param="inputs.0",
    )


@pytest.mark.parametrize(
    ("fields", "truncation"),
    [
        ({}, Truncation.NONE),
        ({"truncate": False, "truncation_direction": "Left"}, Truncation.NONE),
        ({"truncate": None}, Truncation.NONE),
        ({"truncate": True}, Truncation.END),
        ({"truncate": True, "truncation_direction": "Right"}, Truncation.END),
        ({"truncate": True, "truncation_direction": "left"}, Truncation.START),
    ],
)
@pytest.mark.parametrize("path", ["/embed", "/embed_all"])
def test_truncation(path: str, fields: dict[str, object], truncation: Truncation) -> None:
    (item,) = items(path, inputs="a", **fields)
    assert item.truncation is truncation


def test_every_token() -> None:
    (item,) = items("/embed_all", inputs="a")
    assert item == EmbedItem(
        text="a", truncation=Truncation.NONE, normalize=False, each_token=True, param="inputs"
    )
    (item,) = items("/embed_all", inputs="a", normalize=True, dimensions=1)
    assert (item.each_token, item.normalize, item.dimensions) == (True, True, 1)
    found = body("/embed_all", vectors((1, 2), (3, 4)), vectors((5, 6)), inputs=["a", "b"])
    assert found == [[[1, 2], [3, 4]], [[5, 6]]]


def test_similarity() -> None:
    fields = {"inputs": {"source_sentence": "a", "sentences": ["b", "c"]}}
    found = items("/similarity", **fields, parameters={"truncate": True, "prompt_name": "query"})
    assert [item.param for item in found] == [
        "inputs.source_sentence",
        "inputs.sentences.0",
        "inputs.sentences.1",
    ]
    assert {(item.normalize, item.truncation, item.prompt) for item in found} == {
        (True, Truncation.END, "query")
    }
    scores = body("/similarity", vectors((1, 0)), vectors((0.5, 0.5)), vectors((-1, 0)), **fields)
    assert scores == [0.5, -1]


async def test_info_of_the_only_model() -> None:
    backend = scripted(record, DESCRIPTION)
    status, found = await get(app_over(record, backend), "/info")
    assert backend.calls[0].items == (DescribeItem(),)
    assert backend.calls[0].model == "pond"
    version = found.pop("version")
    assert version
    assert (status, found) == (
        200,
        {
            "model_id": "pond@1",
            "model_sha": "0123",
            "model_dtype": "float32",
            "model_type": {"embedding": {"pooling": "mean"}},
            "max_input_length": 256,
            "max_batch_tokens": 512,
            "max_client_batch_size": 2048,
            "auto_truncate": False,
        },
    )


async def test_the_body_may_name_one_of_several_models() -> None:
    backend = scripted(record, vectors((1, 0)))
    app = app_over(record, backend)
    assert (await post(app, "/embed", inputs="a", model="pond"))[0] == 200
    backend.cards = [*backend.cards, *backend.cards]
    status, found = await post(app, "/embed", inputs="a")
    assert (status, found["error_type"]) == (422, "Validation")


@pytest.mark.parametrize(
    ("path", "fields", "status", "kind"),
    [
        ("/embed", {"inputs": []}, 400, "Empty"),
        ("/embed", {"inputs": ""}, 400, "Empty"),
        ("/embed_all", {"inputs": ["a", ""]}, 400, "Empty"),
        ("/embed_all", {"inputs": "a", "normalize": "x"}, 422, "Validation"),
        ("/embed_all", {"inputs": "a", "dimensions": 0}, 422, "Validation"),
        ("/embed", {"inputs": 5}, 422, "Validation"),
        ("/embed", {}, 422, "Validation"),
        ("/embed", {"inputs": "a", "truncate": "yes"}, 422, "Validation"),
        ("/embed", {"inputs": ["a"] * 2049}, 413, "Validation"),
        ("/similarity", {"inputs": "a"}, 422, "Validation"),
        ("/similarity", {"inputs": {"source_sentence": "", "sentences": ["a"]}}, 400, "Empty"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, 400, "Empty"),
        (
            "/similarity",
            {"inputs": {"source_sentence": "a", "sentences": ["a"] * 2048}},
            413,
            "Validation",
        ),
    ],
)
async def test_bad_requests(path: str, fields: dict[str, object], status: int, kind: str) -> None:
    backend = scripted(record, vectors((1, 0)))
    answered, found = await post(app_over(record, backend), path, **fields)
    assert (answered, found["error_type"], set(found)) == (status, kind, {"error", "error_type"})
    assert not backend.calls


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ContextLengthExceeded("300 > 256", param="inputs.1"), 422, "Validation"),
        (PayloadTooLarge(), 413, "Validation"),
        (NotReady(), 503, "Unhealthy"),
        (Overloaded(), 429, "Overloaded"),
        (RateLimited(), 429, "Overloaded"),
        (DeadlineExceeded(), 408, "Overloaded"),
        (EngineFailed(), 424, "Backend"),
        (WorkerLost(), 424, "Backend"),
        (HeadpondError(), 424, "Backend"),
        (RuntimeError("a bug"), 424, "Backend"),
    ],
)
async def test_errors_of_the_backend(error: Exception, status: int, kind: str) -> None:
    backend = scripted(record, vectors((1, 0)))
    backend.refusal = error
    answered, found = await post(app_over(record, backend), "/embed", inputs="a")
    assert (answered, found["error_type"]) == (status, kind)
    assert "a bug" not in found["error"]


async def test_a_failed_text_is_named() -> None:
    failed: list[Event] = [Failed(1, EngineFailed("broke")), Ended(Work())]
    app = app_over(record, scripted_events(record, failed))
    status, found = await post(app, "/embed", inputs=["a", "b"])
    assert (status, found) == (424, {"error": "inputs.1: broke", "error_type": "Backend"})


async def test_what_tei_has_besides_is_refused_in_its_form() -> None:
    app = app_over(record, scripted(record))
    for path in ("/embed_sparse", "/rerank", "/decode"):
        status, found = await post(app, path, inputs="a")
        assert (status, found["error_type"]) == (404, "Validation")
    status, found = await get(app, "/embed")
    assert (status, found["error_type"]) == (405, "Validation")
    status, found = await post(app, "/v2/rerank", query="a")
    assert (status, list(found)) == (404, ["message"])
    status, found = await post(app, "/v2/repository/index")
    assert (status, list(found)) == (404, ["error"])
    status, found = await post(app, "/v1/nothing")
    assert (status, found["error"]["code"]) == (404, "not_found")


async def test_the_document_has_its_statuses() -> None:
    status, found = await get(app_over(record, scripted(record)), "/openapi.json")
    assert status == 200
    assert {"400", "413", "422", "424", "429", "503"} <= set(
        found["paths"]["/embed"]["post"]["responses"]
    )
    openai = set(found["paths"]["/v1/embeddings"]["post"]["responses"])
    assert not {"422", "424"} & openai
