"""Dashboards and alerts: derived from the records, in the metrics' own names, as committed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from headpond.cli import app
from headpond.dashboards.alerts import rules
from headpond.dashboards.pages import workload_page
from headpond.http.metrics import HttpMetrics
from headpond.http.sessions import Sessions
from headpond.record import WorkloadRecord
from headpond.registry import workloads
from headpond.settings import SessionLimits
from headpond.telemetry.metrics import Metrics

HELM = Path(__file__).parents[2] / "helm/headpond"
"""Where the chart takes them from."""

FILLED = {"$__rate_interval": "1m"}


@dataclass
class IdleLoop:
    received: int = 0
    running_slots: int = 0
    queued_items: int = 0
    state_held_bytes: int = 0
    state_budget_bytes: int = 1


def shown(record: WorkloadRecord) -> set[str]:
    """Return the names of all samples that a replica and its HTTP layer show."""
    metrics = Metrics(record, bundle="b", model="m")
    metrics.watch(IdleLoop)
    http = HttpMetrics()
    http.watch(Sessions(SessionLimits()))
    http.account(record.name).received += 1
    names = set()
    for family in text_string_to_metric_families(metrics.text() + http.text()):
        names.add(f"{family.name}_total" if family.type == "counter" else family.name)
        names |= {sample.name for sample in family.samples}
        if family.type == "histogram":
            names |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
    return names


def queries(page: Mapping[str, Any]) -> Iterator[str]:
    for panel in page["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for variable, value in FILLED.items():
                text = text.replace(variable, value)
            yield text


def used(promql: str) -> set[str]:
    return set(re.findall(r"\b(?:headpond|process)_[a-z_]+", promql))


def committed() -> list[Path]:
    return sorted((HELM / "dashboards").glob("*.json"))


def test_what_is_committed_is_what_is_derived(tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["dashboards", "--out", str(tmp_path)]).exit_code == 0
    derived = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert derived == {path.name: path.read_text() for path in committed()}
    assert set(derived) == {"overview.json", *(f"{name}.json" for name in workloads())}
    printed = runner.invoke(app, ["alerts"])
    assert printed.stdout == (HELM / "files/alerts.yaml").read_text()


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.stem)
def test_every_query_parses_and_asks_for_what_is_shown(path: Path) -> None:
    names = set().union(*(shown(record) for record in workloads().values()))
    page = json.loads(path.read_text())
    asked = list(queries(page))
    assert asked
    for promql in asked:
        promql_parser.parse(promql)
        assert used(promql) <= names, promql


def test_every_alert_parses_and_asks_for_what_is_shown() -> None:
    names = set().union(*(shown(record) for record in workloads().values()))
    groups = yaml.safe_load((HELM / "files/alerts.yaml").read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in alerts:
        promql_parser.parse(rule["expr"])
        assert used(rule["expr"]) <= names, rule["expr"]
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_a_page_shows_what_its_record_declares(record: WorkloadRecord) -> None:
    page = workload_page(record).document()
    text = json.dumps(page)
    for phase in record.phases:
        assert f'phase=\\"{phase.name}\\"' in text
    for unit in record.units:
        assert f'unit=\\"{unit.name}\\"' in text
    for tally in record.tallies:
        assert f"headpond_{tally.name}_total" in text


def test_panels_lie_beside_each_other(record: WorkloadRecord) -> None:
    page: dict[str, Any] = dict(workload_page(record).document())
    taken: set[tuple[int, int]] = set()
    for panel in page["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


def test_an_alert_holds_each_bound_of_a_record(record: WorkloadRecord) -> None:
    written = yaml.safe_dump(rules({record.name: record}))
    assert "HeadpondToyFirstOutput" in written
    assert "HeadpondToyGap" in written
    assert "HeadpondToyTotal" not in written
