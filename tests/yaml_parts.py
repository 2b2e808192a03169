"""Parts of YAML files, as the documentation shows them, checked as what they are parts of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import cast

import jsonschema_rs
import yaml

from charts import CHART
from headpond.api_key import read_keys
from headpond.bundle.document import read_document
from headpond.bundle.manifest import Manifest
from headpond.devices import Device
from headpond.settings import Settings
from headpond_workloads.diffusion.engine import options as diffusion
from headpond_workloads.encoders import options as encoders
from headpond_workloads.generation.engine import options as generation
from headpond_workloads.generation.engine.conversation import Ways
from headpond_workloads.vision.engine import options as vision
from headpond_workloads.vision.engine.preprocessing import Preprocessing
from serve_configs import checked

ROOT = Path(__file__).parents[1]
BUNDLES = {
    "diffusion": "tinysd-digits",
    "embedding": "all-minilm-l6-v2",
    "generation": "smollm2-135m-instruct",
    "vision": "efficientnet-lite0",
}
"""A bundle of the workload that a page is about; what the page shows takes the place of its own."""
READERS: Mapping[str, tuple[Callable[[Manifest], object], ...]] = {
    "diffusion": (diffusion.inputs_of, diffusion.options_of, diffusion.outputs_of),
    "embedding": (lambda manifest: encoders.options_of(manifest, encoders.EncoderOptions),),
    "generation": (generation.options_of, Ways.of),
    "vision": (Preprocessing.of, vision.options_of, vision.outputs_of),
}
IMPORT_PATHS = {"Router": "headpond.router:build", "Model": "headpond.deployment:build"}
_SECRET = re.compile(r"<[^<>|]*(?:digits|one's)[^<>|]*>")
_MODEL = {"bundle": "a-bundle", "alias": "a-model"}

Node = dict[str, object]


def check_yaml(text: str, page: Path, folder: Path) -> None:
    """Check a YAML block of a page.

    Args:
        text: The block, with placeholders in angle brackets for hashes.
        page: Its page.
        folder: Files are written there.

    Raises:
        ValueError: Nobody knows what it is a part of; or it is wrong.
        HeadpondError: It is wrong, and which field.
    """
    text = _SECRET.sub(f'"{"0" * 64}"', text)
    document = yaml.safe_load(text)
    if isinstance(document, list) and "import_path" in document[0]:
        checked({"applications": [_application(each) for each in document]})
    elif isinstance(document, list):
        (folder / "keys.yaml").write_text(text, encoding="utf-8")
        read_keys(folder / "keys.yaml")
    else:
        _check_mapping(document, page)


def _check_mapping(document: Node, page: Path) -> None:
    if document.keys() <= {"args", "deployments"}:
        checked({"applications": [_application({"name": "a-part", **document})]})
    elif document.keys() <= Settings.model_fields.keys():
        Settings.read(document)
    elif "bytes_per_s" in document:
        Device.model_validate(document)
    elif "workload" in document or page.stem in BUNDLES:
        _check_bundle(document, str(document.get("workload", page.stem)))
    elif document.keys() <= _values().keys():
        _chart_schema().validate(_merged(_values(), document))
    else:
        raise ValueError(f"nobody knows what {sorted(document)} are part of")


def _application(shown: Node) -> Node:
    deployments = cast("list[Node]", shown.get("deployments", []))
    name = str(deployments[0]["name"]) if deployments else "Model"
    found = {"import_path": IMPORT_PATHS[name], "route_prefix": f"/{shown['name']}", **shown}
    if found["import_path"] == IMPORT_PATHS["Model"]:
        found["args"] = {**_MODEL, **cast("Node", shown.get("args", {}))}
    return found


def _check_bundle(shown: Node, workload: str) -> None:
    document = read_document(ROOT / "bundles" / BUNDLES[workload] / "bundle.yaml")
    manifest = Manifest.parse(_merged(cast("Node", document), shown))
    for read in READERS[workload]:
        read(manifest)


def _merged(base: Node, over: Node) -> Node:
    """Return a mapping with the values of another one in the place of its own."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = (
            _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return merged


@cache
def _values() -> Node:
    return cast("Node", yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))


@cache
def _chart_schema() -> jsonschema_rs.Draft202012Validator:
    schema = (CHART / "values.schema.json").read_text(encoding="utf-8")
    return jsonschema_rs.Draft202012Validator(yaml.safe_load(schema))
