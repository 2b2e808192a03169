"""The OpenAPI document: derived, complete, and true of what the app does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from headpond.call import Done, Ended, Output
from headpond.http.app import ASGIApp, build_app
from headpond.http.openapi import document
from headpond.record import WorkloadRecord
from headpond.settings import Settings
from headpond.testing.asgi import AsgiRequest
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

LAST = (Output(0, "x"), Done(0, Work(toys=1)), Ended(work=Work(toys=1)))
FEW = settings(
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


async def described(app: ASGIApp, root_path: str = "") -> dict[str, Any]:
    request = AsgiRequest(path=f"{root_path}/openapi.json", method="GET", root_path=root_path)
    found: dict[str, Any] = json.loads((await request.run(app)).body)
    return found


def references(node: object) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set().union(*map(references, node)) if isinstance(node, list) else set()


async def test_every_route_is_described_with_its_types_and_errors(app: ASGIApp) -> None:
    doc = await described(app)
    assert doc["openapi"] == "3.1.0"
    assert {"/v1/toy", "/v1/toy/whole", "/v1/models", "/v1/models/{model}", "/readyz"} <= set(
        doc["paths"]
    )
    operation = doc["paths"]["/v1/toy"]["post"]
    asked = operation["requestBody"]["content"]["application/json"]
    assert asked["schema"] == {"$ref": "#/components/schemas/ToyRequest"}
    assert asked["example"]["text"] == "one two"
    assert set(operation["responses"]["200"]["content"]) == {
        "application/json",
        "text/event-stream",
    }
    errors = {"400", "401", "403", "404", "408", "413", "429", "500", "502", "503"}
    assert set(operation["responses"]) == {"200"} | errors


async def test_every_reference_leads_to_a_valid_schema(app: ASGIApp) -> None:
    doc = await described(app)
    schemas = doc["components"]["schemas"]
    assert references(doc) == {f"#/components/schemas/{name}" for name in schemas}
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


async def test_the_prefix_is_the_server(app: ASGIApp) -> None:
    assert (await described(app))["servers"] == [{"url": "/"}]
    assert (await described(app, "/models/toy"))["servers"] == [{"url": "/models/toy"}]


def test_a_key_is_asked_for_when_there_are_keys(record: WorkloadRecord) -> None:
    assert document([record], secured=True)["security"] == [{"key": []}]
    assert "security" not in document([record], secured=False)


@pytest.mark.parametrize("mode", GenerationMode)
def test_the_app_does_what_the_document_says(
    record: WorkloadRecord, backend: ScriptedBackend, mode: GenerationMode
) -> None:
    backend.steps = [LAST]
    unbounded = replace(
        record,
        request=replace(record.request, max_body_bytes=10**9),
        routes=record.routes[:1],
    )
    app = build_app([unbounded], backend, Settings())
    api = schemathesis.openapi.from_asgi("/openapi.json", app)
    operations = [found.ok() for found in api.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) == 12

    @given(case=st.one_of([operation.as_strategy(mode) for operation in operations]))
    @FEW
    def check(case: schemathesis.Case[Any]) -> None:
        # A deadline of no time is right by its schema, and missed: 408 whatever else is sent.
        case.headers.pop("x-headpond-deadline-ms", None)
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body["model"] = "org/toy-small"
        case.call_and_validate()

    check()


@given(body=st.binary(max_size=400) | st.text(max_size=100).map(str.encode))
@FEW
async def test_no_bytes_are_a_fault_of_ours(app: ASGIApp, body: bytes) -> None:
    request = await AsgiRequest(path="/v1/toy", parts=[body]).run(app)
    assert request.status in {400, 404, 413}
    assert set(json.loads(request.body)["error"]) == {"message", "type", "param", "code"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["model", "text", "stream", "parts", "weight", "kind"]), inner
        )
    ),
    max_leaves=12,
)


@given(body=JSON)
@FEW
async def test_no_json_is_a_fault_of_ours(app: ASGIApp, body: object) -> None:
    request = await AsgiRequest(path="/v1/toy", parts=[json.dumps(body).encode()]).run(app)
    assert request.status in {400, 404, 413}


@given(
    headers=st.dictionaries(
        st.sampled_from(
            [
                "authorization",
                "x-request-id",
                "traceparent",
                "content-length",
                "content-type",
                "x-headpond-deadline-ms",
                "x-headpond-priority",
                "x-headpond-session",
            ]
        ),
        st.text(st.characters(max_codepoint=255), max_size=40),
    )
)
@FEW
async def test_no_header_is_a_fault_of_ours(app: ASGIApp, headers: dict[str, str]) -> None:
    request = await AsgiRequest(path="/v1/toy", parts=[b"{}"], headers=headers).run(app)
    assert request.status in {400, 408, 413}
