"""`headpond usage`: what the server has counted, for people and for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from headpond.cli import app
from headpond.client.transport import Transport
from headpond.errors import NotFound
from headpond.usage_wire import UsageReport, UsageRow

REPORT = UsageReport(
    start=1_780_272_000,
    end=1_780_358_400,
    group_by=("day", "model"),
    data=(
        UsageRow(start=1_780_272_000, model="chat", unit="output_tokens", amount=1234),
        UsageRow(start=1_780_272_000, model="chat", unit="requests", amount=5),
    ),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answer every request by a report, and note the addresses."""
    paths: list[str] = []

    def get(_: Transport, path: str, answer: type[Any]) -> UsageReport:
        assert answer is UsageReport
        paths.append(path)
        return REPORT

    monkeypatch.setattr(Transport, "get", get)
    return paths


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["usage", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def test_it_asks_for_what_is_wanted(asked: Sequence[str]) -> None:
    run("--start", "2026-06-01", "--end", "2026-06-02", "--group-by", "day,model")
    run("--tenant", "acme")
    assert asked == [
        "/v1/usage?start=2026-06-01&end=2026-06-02&group_by=day%2Cmodel",
        "/v1/usage?group_by=workload%2Cmodel&tenant=acme",
    ]


@pytest.mark.usefixtures("asked")
def test_a_table_is_for_people() -> None:
    lines = run().splitlines()
    assert lines[0].split() == ["day", "model", "unit", "amount"]
    assert lines[1].split() == ["2026-06-01", "chat", "output_tokens", "1234"]


@pytest.mark.usefixtures("asked")
def test_csv_is_for_spreadsheets() -> None:
    rows = list(csv.DictReader(io.StringIO(run("--csv"))))
    assert rows[1] == {"day": "2026-06-01", "model": "chat", "unit": "requests", "amount": "5"}


@pytest.mark.usefixtures("asked")
def test_json_is_what_the_server_said() -> None:
    assert UsageReport.model_validate(json.loads(run("--json"))) == REPORT
    run("--json", "--csv", code=2)


def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotFound("No usage is shown at this address.")

    monkeypatch.setattr(Transport, "get", refuse)
    run(code=1)
