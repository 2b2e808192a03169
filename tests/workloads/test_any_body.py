"""Whatever is sent: an answer that says what is wrong, in the dialect's own form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exchanges import app_over, scripted
from headpond.dialect import Route
from headpond.errors import InvalidRequest
from headpond.http.app import ASGIApp
from headpond.record import WorkloadRecord
from headpond.testing.asgi import AsgiRequest
from headpond_workloads.diffusion.record import record as diffusion
from headpond_workloads.embedding.record import record as embedding
from headpond_workloads.reranking.record import record as reranking
from headpond_workloads.vision.record import record as vision

FEW = settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "pond", "é"])
)
ROUTES = [
    (record, route)
    for record in (diffusion, embedding, reranking, vision)
    for route in record.routes
    if route.method == "POST"
]
POSTED = [pytest.param(record, route, id=f"{record.name} {route.path}") for record, route in ROUTES]
UNDERSTOOD = [
    pytest.param(record, route, id=f"{record.name} {route.path}")
    for record, route in ROUTES
    if not route.summary.startswith("Refused")
]


@cache
def app_of(name: str) -> ASGIApp:
    record = {each.name: each for each in (diffusion, embedding, reranking, vision)}[name]
    backend = scripted(record)
    backend.refusal = InvalidRequest("the engine refuses all")
    return app_over(record, backend)


def names_in(schema: object) -> Iterator[str]:
    """The names of all fields that a wire type knows, however deep."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            yield from names_in(each)


def bodies(route: Route) -> st.SearchStrategy[object]:
    assert route.request is not None
    names = st.sampled_from(sorted(set(names_in(route.request.model_json_schema()))))
    values = st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=6),
        max_leaves=12,
    )
    return st.dictionaries(names, values, max_size=6) | values


@pytest.mark.parametrize(("record", "route"), POSTED)
@given(data=st.data())
@FEW
async def test_no_json_is_a_fault_of_ours(
    record: WorkloadRecord, route: Route, data: st.DataObject
) -> None:
    parts = [json.dumps(data.draw(bodies(route))).encode()]
    request = await AsgiRequest(path=route.path, parts=parts).run(app_of(record.name))
    assert request.status in {400, 413, 422}
    found = json.loads(request.body)
    if route.fail is None:
        assert set(found["error"]) == {"message", "type", "param", "code"}
    else:
        assert set(found) == set(route.fail(InvalidRequest()).body)


@pytest.mark.parametrize(("record", "route"), UNDERSTOOD)
async def test_the_example_is_understood(record: WorkloadRecord, route: Route) -> None:
    parts = [json.dumps({"model": "pond", **route.example}).encode()]
    path = route.path.replace("{model}", "pond").replace("{version}", "1")
    request = await AsgiRequest(path=path, parts=parts).run(app_of(record.name))
    assert b"the engine refuses all" in request.body
