"""Write what the chart knows of the platform: `files/catalogue.yaml` and `values.schema.json`.

Both come from the code, so that a chart refuses at template time what a replica would refuse
at its start. `make chart` runs this; with `--check` it only says which files are stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import ray
import yaml
from pydantic import BaseModel

from headpond.bundle.document import read_manifest
from headpond.deployment import ModelArgs
from headpond.jobs.deployment import JobWorkerArgs
from headpond.jobs.settings import JobStore
from headpond.planner import plan_memory
from headpond.ray_env import RAY_ENV
from headpond.registry import workloads
from headpond.settings import Settings

HERE = Path(__file__).parent
BUNDLES = HERE.parent / "bundles"
CATALOGUE = HERE / "headpond/files/catalogue.yaml"
SCHEMA_SOURCE = HERE / "values.schema.yaml"
SCHEMA = HERE / "headpond/values.schema.json"

HEADER = "# Made from the records and the demo bundles by `make chart`; edit those.\n"
OWNED: Mapping[str, tuple[type[BaseModel], frozenset[str]]] = {
    "modelArgs": (ModelArgs, frozenset({"bundle", "alias", "settings"})),
    "jobsArgs": (JobWorkerArgs, frozenset({"store", "settings"})),
    "jobStore": (JobStore, frozenset({"folder"})),
    "settings": (Settings, frozenset({"keys", "keys_file"})),
}
"""Definitions of the schema that the platform's own models are, less what the chart fills in."""


def catalogue() -> str:
    """Return the catalogue: workloads, demo bundles with their memory, and Ray's settings."""
    records = workloads()
    document = {
        "rayVersion": ray.__version__,
        "stateBytes": int(ModelArgs.model_fields["state_bytes"].default),
        "env": {**RAY_ENV, "RAY_SERVE_HAPROXY_BINARY_PATH": "/usr/local/bin/headpond-haproxy"},
        "workloads": {
            name: {
                "devices": list(record.fit.devices),
                "staticBytes": list(record.fit.static_bytes),
            }
            for name, record in records.items()
        },
        "bundles": dict(_bundle(path) for path in sorted(BUNDLES.glob("*/bundle.yaml"))),
    }
    return HEADER + yaml.safe_dump(document, sort_keys=False, width=100)


def _bundle(path: Path) -> tuple[str, dict[str, object]]:
    manifest = read_manifest(path)
    record = workloads()[manifest.workload]
    plan = plan_memory(record, manifest, state_bytes=0, available_bytes=sys.maxsize)
    return path.parent.name, {
        "version": manifest.version,
        "workload": manifest.workload,
        "staticBytes": plan.static_bytes,
    }


def schema() -> str:
    """Return the schema of the values: what is written by hand, and the platform's models."""
    document = yaml.safe_load(SCHEMA_SOURCE.read_text(encoding="utf-8"))
    definitions = document["$defs"]
    for name, (model, filled_in) in OWNED.items():
        described = model.model_json_schema()
        for field in filled_in:
            described["properties"].pop(field, None)
        required = [field for field in described.get("required", ()) if field not in filled_in]
        definitions |= described.pop("$defs", {})
        definitions[name] = {**described, "required": required}
    used = _reachable(document, definitions)
    document["$defs"] = {
        name: _bare(described) for name, described in definitions.items() if name in used
    }
    return json.dumps(document, indent=2) + "\n"


def _reachable(document: Mapping[str, object], definitions: Mapping[str, object]) -> set[str]:
    rest = {name: part for name, part in document.items() if name != "$defs"}
    found: set[str] = set()
    waiting = set(_references(rest))
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= set(_references(definitions[name])) - found
    return found


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(ref := node.get("$ref"), str):
            yield ref.removeprefix("#/$defs/")
        for part in node.values():
            yield from _references(part)
    elif isinstance(node, list):
        for part in node:
            yield from _references(part)


def _bare(node: object) -> object:
    """Leave out pydantic's titles, docstrings and defaults: the platform has them."""
    if isinstance(node, list):
        return [_bare(part) for part in node]
    if not isinstance(node, dict):
        return node
    said = {"title", "description", "default"}
    return {
        key: {name: _bare(part) for name, part in value.items()}
        if key == "properties" and isinstance(value, dict)
        else _bare(value)
        for key, value in node.items()
        if key not in said
    }


def main() -> int:
    """Write both files, or with `--check` name those that are not as they should be."""
    check = "--check" in sys.argv[1:]
    stale = 0
    for path, text in ((CATALOGUE, catalogue()), (SCHEMA, schema())):
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            print(f"{path.relative_to(HERE.parent)} is stale: run `make chart`")
        else:
            path.write_text(text, encoding="utf-8")
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(main())
