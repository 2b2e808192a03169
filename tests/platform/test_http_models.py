"""The list of models, probes, the workloads index, and metrics."""

from __future__ import annotations

import dataclasses
import json

from headpond.http.app import ASGIApp
from headpond.record import WorkloadRecord
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend

ONE = {
    "id": "org/toy-small",
    "object": "model",
    "created": 1_700_000_000,
    "owned_by": "headpond",
    "workload": "toy",
    "bundles": ["toy-small@1+0123456789ab"],
    "limits": {"words": 8},
}


async def get(app: ASGIApp, path: str) -> AsgiRequest:
    return await AsgiRequest(path=path, method="GET").run(app)


async def test_models_are_listed_as_openai_lists_them(app: ASGIApp) -> None:
    request = await get(app, "/v1/models")
    assert request.status == 200
    assert json.loads(request.body) == {"object": "list", "data": [ONE]}


async def test_a_model_is_found_by_a_name_with_slashes(app: ASGIApp) -> None:
    assert json.loads((await get(app, "/v1/models/org/toy-small")).body) == ONE


async def test_an_unknown_model_is_not_found(app: ASGIApp) -> None:
    request = await get(app, "/v1/models/org/none")
    assert request.status == 404
    error = json.loads(request.body)["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")


async def test_a_backend_that_cannot_serve_fails_readiness_only(
    app: ASGIApp, backend: ScriptedBackend
) -> None:
    backend.reasons = {"org/toy-small": "the engine stands still"}
    for path in ("/readyz", "/health", "/ping"):
        request = await get(app, path)
        assert request.status == 503
        assert json.loads(request.body)["not_ready"] == backend.reasons
    assert (await get(app, "/healthz")).status == 200
    backend.reasons = {}
    assert (await get(app, "/health")).status == 200


async def test_metrics_are_the_backends_and_our_own(app: ASGIApp, backend: ScriptedBackend) -> None:
    backend.exposition = "# TYPE x gauge\nx 1.0\n"
    await get(app, "/healthz")
    request = await get(app, "/metrics")
    assert request.answer_headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert request.body.startswith(backend.exposition.encode())
    assert b'headpond_http_responses_total{route="/healthz",status="200"} 1.0' in request.body


async def test_a_fault_of_the_backend_is_a_bare_500(app: ASGIApp, backend: ScriptedBackend) -> None:
    backend.__dict__["cards"] = None  # a bug of ours, not an error that anybody raises
    request = await get(app, "/v1/models")
    assert request.status == 500
    assert json.loads(request.body)["error"]["code"] == "internal_error"


async def test_the_index_shows_every_field_of_a_record(
    app: ASGIApp, record: WorkloadRecord
) -> None:
    (shown,) = json.loads((await get(app, "/v1/workloads")).body)["data"]
    assert list(shown) == [field.name for field in dataclasses.fields(record)]
    assert shown["cost"] == "toy_cost: Count one toy unit."
    assert shown["phases"][1] == {"name": "queue", "kind": "queue", "summary": ""}
    assert shown["batching"]["axis"] == "words"
    assert shown["routes"][0]["request"] == "ToyRequest"
    assert shown["overload"]["queue_limit"] == {"toys": 10}
    assert shown["overload"]["failures"][0]["error"] == {
        "error": "Overloaded",
        "status": 503,
        "code": "overloaded",
    }
