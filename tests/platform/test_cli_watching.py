"""`headpond top` and `headpond status` against a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from exchanges import serving
from headpond.api_key import hash_key
from headpond.call import Accepted, Done, Ended, ModelCard, Output
from headpond.cli import app as cli
from headpond.http.app import build_app
from headpond.record import WorkloadRecord
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work

BUNDLE = "small@1+0123456789ab"
OPEN = {"keys": [{"key_sha256": hash_key("k"), "tenant": "acme", "metrics": True}]}


@pytest.fixture
def backend(record: WorkloadRecord) -> ScriptedBackend:
    metrics = Metrics(record, bundle=BUNDLE, model="small")
    metrics.watch(Idle)
    card = ModelCard(name="small", workload="toy", bundles=(BUNDLE,), created_s=1, limits={})
    return ScriptedBackend(
        accepted=Accepted(bundle=BUNDLE, model="small", work=Work(toys=1)),
        cards=(card,),
        steps=[[Output(0, "a"), Done(0, Work(toys=1)), Ended(Work(toys=1))]],
        exposition=metrics.text(),
    )


class Idle:
    """A loop with nothing to do."""

    received = running_slots = queued_items = state_held_bytes = 0
    state_budget_bytes = 100


@pytest.fixture
def url(record: WorkloadRecord, backend: ScriptedBackend) -> Iterator[str]:
    with serving(build_app([record], backend, Settings.read(OPEN))) as base_url:
        yield base_url


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments))
    return result.exit_code, result.stdout


def look(url: str) -> Any:
    code, text = run("top", "--url", url, "--api-key", "k", "--once", "--json", "--interval", "0.2")
    assert code == 0
    return json.loads(text)


def test_top_says_what_each_model_does(url: str) -> None:
    body = {"model": "small", "text": "x"}
    headers = {"authorization": "Bearer k"}
    assert httpx2.post(f"{url}/v1/toy", json=body, headers=headers).status_code == 200
    found = look(url)
    (door,) = found["workloads"]
    (model,) = found["models"]
    assert (door["workload"], door["open"], door["received_s"]) == ("toy", 0, 0)
    assert (model["model"], model["replicas"], model["running"]) == ("small", 1, 0)
    assert model["first_p50_s"] is None
    assert set(model["work_s"]) == {"toys"}


def test_top_is_a_table_for_people(url: str) -> None:
    code, text = run("top", "--url", url, "--api-key", "k", "--once", "--interval", "0.2")
    assert code == 0
    assert "front door" in text
    assert "small" in text


def test_top_says_why_it_sees_nothing(url: str) -> None:
    assert run("top", "--url", url, "--once")[0] == 1
    assert run("top", "--url", "http://127.0.0.1:9", "--once")[0] == 1


def test_status_says_what_is_served_and_by_what(url: str) -> None:
    code, text = run("status", "--url", url, "--api-key", "k", "--json")
    assert code == 0
    assert json.loads(text)["models"] == [
        {
            "alias": "small",
            "workload": "toy",
            "bundles": [BUNDLE],
            "replicas": 1,
            "not_ready": None,
        }
    ]


def test_status_says_what_is_not_ready_and_fails(url: str, backend: ScriptedBackend) -> None:
    backend.reasons = {"small": "its engine stands still", "gone": "no replica is running"}
    code, text = run("status", "--url", url, "--api-key", "k")
    assert code == 1
    assert "its engine stands still" in text
    assert "no replica is running" in text
