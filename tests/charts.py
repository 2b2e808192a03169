"""The Helm chart, rendered by a real Helm engine, and what a cluster would say of it."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import cast

import helm_python
import jsonschema_rs
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "helm/headpond"
CRDS_ENV = "HEADPOND_KUBERAY_CRDS"
KUBERNETES = "1.37"

Node = dict[str, object]
"""A mapping of a manifest or of values."""

CASES: Mapping[str, Node] = {
    "default": {},
    **{
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "tests/helm/values").glob("*.yaml"))
    },
}
"""Values by name, each of another kind of cluster."""

cases = pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())


def render(values: Mapping[str, object] | None = None, *, chart: Path = CHART) -> list[Node]:
    """Return every manifest of the chart as release `demo`, in order of its files.

    Raises:
        helm_python.HelmError: The values are refused, or a template fails.
    """
    texts = rendered(values, chart=chart)
    manifests = [text for path, text in sorted(texts.items()) if path.endswith(".yaml")]
    return [
        manifest
        for text in manifests
        for manifest in yaml.load_all(text, Loader=StrictLoader)
        if manifest is not None
    ]


def rendered(
    values: Mapping[str, object] | None = None, *, chart: Path = CHART
) -> Mapping[str, str]:
    """Return the text of each rendered file by its path."""
    return _texts(chart, json.dumps(values or {}, sort_keys=True))


@cache
def _texts(chart: Path, values: str) -> dict[str, str]:
    # Rendering takes dependencies that are off out of the loaded chart, for good.
    with helm_python.Chart.load(chart) as loaded:
        return loaded.render(json.loads(values), name="demo", namespace="models")


def refusal(values: Mapping[str, object]) -> str:
    """Return what the chart says of values that it must refuse."""
    with pytest.raises(helm_python.HelmError) as refused:
        render(values)
    return str(refused.value)


class StrictLoader(yaml.SafeLoader):
    """YAML as an API server reads it: a key that stands twice is an error."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        """Return the mapping, unless a key stands twice."""
        keys = [key.value for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.YAMLError(f"a key stands twice: {sorted(keys)}")
        return super().construct_mapping(node, deep)


def _mapping(loader: StrictLoader, node: yaml.MappingNode) -> object:
    return loader.construct_mapping(node, deep=True)


StrictLoader.add_constructor("tag:yaml.org,2002:map", _mapping)


def of_kind(manifests: Sequence[Node], kind: str) -> list[Node]:
    """Return the manifests of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def at(node: object, path: str) -> object:
    """Return what lies at a dotted path; a part that is a number is an index."""
    for part in path.split("."):
        node = node[int(part)] if isinstance(node, list) else cast("Node", node)[part]
    return node


def ray_service(values: Mapping[str, object] | None = None) -> Node:
    """Return the RayService of some values."""
    (service,) = of_kind(render(values), "RayService")
    return service


def serve_config(values: Mapping[str, object] | None = None) -> Node:
    """Return the Serve config of some values."""
    config = yaml.safe_load(str(at(ray_service(values), "spec.serveConfigV2")))
    return cast("Node", config)


def pod_templates(service: Node) -> dict[str, Node]:
    """Return the pod template of the head and of each worker group, by the group's name."""
    cluster = cast("Node", at(service, "spec.rayClusterConfig"))
    groups = cast("list[Node]", cluster["workerGroupSpecs"])
    templates = {str(group["groupName"]): cast("Node", group["template"]) for group in groups}
    return {"head": cast("Node", at(cluster, "headGroupSpec.template")), **templates}


def check_manifest(manifest: Node) -> None:
    """Check a manifest as the API server would: strictly, against the schema of its kind.

    Kinds of Gateway API and of Prometheus's operator have none here.

    Raises:
        kubernetes_validate.ValidationError: A field is unknown, missing or wrong.
        jsonschema_rs.ValidationError: The same, of a RayService.
    """
    group = str(manifest["apiVersion"]).rpartition("/")[0]
    if group == "ray.io":
        kuberay_schema().validate(manifest)
    elif group in ("", "apps", "policy", "networking.k8s.io"):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@cache
def kuberay_schema() -> jsonschema_rs.Draft202012Validator:
    """Return the RayService's schema, made strict; skips the test where there is no CRD."""
    folder = os.environ.get(CRDS_ENV)
    path = Path(folder or "", "ray.io_rayservices.yaml")
    if folder is None or not path.is_file():
        pytest.skip(f"RAYSERVICES ARE NOT CHECKED: {CRDS_ENV} names no folder with {path.name}")
    crd = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    (version,) = (found for found in crd["spec"]["versions"] if found["name"] == "v1")
    strict = cast("Node", _strict(version["schema"]["openAPIV3Schema"]))
    return jsonschema_rs.Draft202012Validator(strict)


def _strict(schema: object) -> object:
    """Turn a CRD's schema into one that a server's strict field validation equals."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    properties = schema.get("properties")
    strict = {key: _strict(part) for key, part in schema.items() if key not in _DROPPED}
    if isinstance(properties, dict):
        fields = {name: _strict(part) for name, part in properties.items()}
        if "apiVersion" in fields:
            fields["metadata"] = {"type": "object"}
        strict["properties"] = fields
        # The server fills defaults in before it looks for what is missing.
        needed = [name for name in schema.get("required", ()) if "default" not in properties[name]]
        strict["required"] = needed
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            strict["additionalProperties"] = False
    return strict


_DROPPED = frozenset({"properties", "required", "default", "format", "description"})
