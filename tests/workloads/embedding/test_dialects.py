"""Whatever is sent: an answer that says what is wrong, in the dialect's own form."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exchanges import app_over, scripted
from headpond.dialect import Route
from headpond.errors import InvalidRequest
from headpond.http.app import ASGIApp
from headpond.testing.asgi import AsgiRequest
from headpond_workloads.embedding.record import record

NAMES = [
    "model",
    "input",
    "inputs",
    "texts",
    "images",
    "content",
    "text",
    "type",
    "dimensions",
    "truncate",
    "parameters",
    "source_sentence",
    "sentences",
    "embedding_types",
]
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
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6)
    ),
    max_leaves=12,
)
BODIES = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6) | JSON
POSTED = [route for route in record.routes if route.method == "POST"]


@pytest.fixture(scope="module")
def app() -> ASGIApp:
    backend = scripted(record)
    backend.refusal = InvalidRequest("the engine refuses all")
    return app_over(record, backend)


@pytest.mark.parametrize("route", POSTED, ids=lambda route: route.path)
@given(sent=BODIES)
@FEW
async def test_no_json_is_a_fault_of_ours(app: ASGIApp, route: Route, sent: object) -> None:
    parts = [json.dumps(sent).encode()]
    request = await AsgiRequest(path=route.path, parts=parts).run(app)
    assert request.status in {400, 413, 422}
    found = json.loads(request.body)
    if route.fail is None:
        assert set(found["error"]) == {"message", "type", "param", "code"}
    else:
        assert set(found) == set(route.fail(InvalidRequest()).body)


@pytest.mark.parametrize("route", POSTED, ids=lambda route: route.path)
async def test_the_example_is_understood(app: ASGIApp, route: Route) -> None:
    parts = [json.dumps({"model": "pond", **route.example}).encode()]
    path = route.path.replace("{model}", "pond").replace("{version}", "1")
    request = await AsgiRequest(path=path, parts=parts).run(app)
    assert b"the engine refuses all" in request.body
