"""What the OpenAPI document says of files and batches is what the app does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from headpond.call import Accepted, ModelCard
from headpond.http.app import ASGIApp, build_app
from headpond.http.jobs import JobsDoor
from headpond.http.openapi import document
from headpond.jobs.access import JobsAccess
from headpond.jobs.settings import JobStore
from headpond.settings import Settings
from headpond.testing.echo import record
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

BUNDLE = "parrot@1+0123456789ab"
FEW = settings(
    max_examples=40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def app(tmp_path: Path) -> ASGIApp:
    card = ModelCard(name="polly", workload="echo", bundles=(BUNDLE,), created_s=5, limits={})
    accepted = Accepted(bundle=BUNDLE, model="polly", work=Work())
    backend = ScriptedBackend(accepted=accepted, cards=[card])
    access = JobsAccess(JobStore(folder=str(tmp_path)))
    return build_app([record], backend, Settings(), jobs=JobsDoor(access))


def test_every_type_is_a_valid_schema() -> None:
    doc: Any = document([record], secured=False, jobs=True)
    assert {"/v1/files", "/v1/files/{file_id}/content", "/v1/batches/{batch_id}/cancel"} <= set(
        doc["paths"]
    )
    for schema in doc["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("mode", GenerationMode)
def test_the_app_does_what_the_document_says(app: ASGIApp, mode: GenerationMode) -> None:
    api = schemathesis.openapi.from_asgi("/openapi.json", app)
    operations = [found.ok() for found in api.get_all_operations() if isinstance(found, Ok)]
    jobs = [operation for operation in operations if "/v1/files" in operation.path]
    jobs += [operation for operation in operations if "/v1/batches" in operation.path]
    assert len(jobs) == 9

    @given(case=st.one_of([operation.as_strategy(mode) for operation in jobs]))
    @FEW
    def check(case: schemathesis.Case[Any]) -> None:
        # No schema knows which files there are, nor what their lines name.
        unknowable = case.operation.label == "POST /v1/batches" or "after" in (case.query or {})
        case.call_and_validate(excluded_checks=[positive_data_acceptance] if unknowable else [])

    check()
