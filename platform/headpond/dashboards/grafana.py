"""Dashboards as Grafana's JSON, of as little as there has to be said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headpond.engine import Json

JsonObject = dict[str, Json]

_COLUMNS = 24
_HEIGHT = 8
_SOURCE: JsonObject = {"type": "prometheus", "uid": "${source}"}
_SCHEMA = 39
"""The version of Grafana's JSON that is written: 10.4's; newer ones take it over."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """One line, or set of lines, of a panel.

    Attributes:
        promql: What is shown.
        legend: What a line is called; `{{label}}` is filled in.
    """

    promql: str
    legend: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One graph.

    Attributes:
        title: What it shows.
        queries: Its lines.
        unit: Grafana's name of their unit: `s`, `bytes`, `reqps`, `percentunit`, `short`.
        summary: What to look for; shown with the title.
        stacked: Whether lines add up to something.
        width: Of 24 columns.
    """

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    summary: str = ""
    stacked: bool = False
    width: int = 8


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A choice above the graphs, of the values of a label.

    Attributes:
        name: As queries name it, `$name`.
        promql: Grafana's `label_values(...)`.
    """

    name: str
    promql: str


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """One page of graphs.

    Attributes:
        uid: Stays the same, so that importing it again replaces it.
        title: What it is called.
        panels: In reading order.
        variables: The choices above them, besides that of the data source.
    """

    uid: str
    title: str
    panels: Sequence[Panel]
    variables: Sequence[Variable] = field(default_factory=tuple)

    def document(self) -> JsonObject:
        """Return it as Grafana takes it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["headpond"],
            "schemaVersion": _SCHEMA,
            "editable": True,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": [_source(), *map(_variable, self.variables)]},
            "panels": list(_placed(self.panels)),
        }


def _source() -> JsonObject:
    return {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> JsonObject:
    return {
        "name": variable.name,
        "type": "query",
        "datasource": _SOURCE,
        "query": variable.promql,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(panels: Iterable[Panel]) -> Iterable[Json]:
    """Yield panels from left to right, in rows."""
    x = y = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > _COLUMNS:
            x, y = 0, y + _HEIGHT
        yield _panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": _HEIGHT})
        x += panel.width


def _panel(panel: Panel, number: int, place: JsonObject) -> JsonObject:
    stacking: JsonObject = {"mode": "normal" if panel.stacked else "none"}
    custom: JsonObject = {"fillOpacity": 20 if panel.stacked else 0, "stacking": stacking}
    targets: list[Json] = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _SOURCE,
            "expr": query.promql,
            "legendFormat": query.legend,
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.summary,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": custom},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": targets,
    }
