"""Whatever the values, what comes out is what a cluster takes."""

from __future__ import annotations

import base64
import shutil
from copy import deepcopy
from pathlib import Path

import helm_python
import jsonschema_rs
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from charts import (
    CASES,
    CHART,
    Node,
    at,
    cases,
    check_manifest,
    of_kind,
    pod_templates,
    ray_service,
    render,
    rendered,
)


@cases
def test_every_manifest_is_valid(values: Node) -> None:
    manifests = render(values)
    assert len(manifests) >= 4
    for manifest in manifests:
        check_manifest(manifest)


def misspelt(manifest: Node, parent: str, name: str, given: str) -> Node:
    """A copy of a manifest with a field under another name."""
    copy = deepcopy(manifest)
    fields = at(copy, parent)
    assert isinstance(fields, dict)
    fields[given] = fields.pop(name)
    return copy


@pytest.mark.parametrize(
    ("parent", "name", "given"),
    [
        ("spec", "serveConfigV2", "serveConfig"),
        ("spec.upgradeStrategy", "type", "kind"),
        ("spec.rayClusterConfig.headGroupSpec", "template", "pod"),
        ("spec.rayClusterConfig.workerGroupSpecs.0", "maxReplicas", "maxPods"),
        ("spec.rayClusterConfig.headGroupSpec.template.spec", "containers", "container"),
    ],
)
def test_a_misspelt_field_of_a_rayservice_is_found(parent: str, name: str, given: str) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        check_manifest(misspelt(ray_service(), parent, name, given))


def test_a_misspelt_field_of_a_policy_is_found() -> None:
    policy = of_kind(render(), "NetworkPolicy")[0]
    with pytest.raises(kubernetes_validate.ValidationError):
        check_manifest(misspelt(policy, "spec", "ingress", "ingres"))


@cases
def test_lint_finds_nothing(values: Node) -> None:
    report = helm_python.lint(CHART, values, strict=True, with_subcharts=True)
    told = [
        message["error"]
        for message in report["messages"]
        if message["error"] != "icon is recommended"
    ]
    assert not told
    assert not report["errors"]


@cases
def test_names_are_apart(values: Node) -> None:
    manifests = render(values)
    names = [(manifest["kind"], at(manifest, "metadata.name")) for manifest in manifests]
    assert len(names) == len(set(names))


@cases
def test_containers_run_as_nobody_and_change_nothing(values: Node) -> None:
    service = ray_service(values)
    pods = [at(template, "spec") for template in pod_templates(service).values()]
    for manifest in render(values):
        if manifest["kind"] == "StatefulSet":
            pods.append(at(manifest, "spec.template.spec"))
        elif manifest["kind"] == "Pod":
            pods.append(manifest["spec"])
    for pod in pods:
        assert at(pod, "securityContext.runAsNonRoot") is True
        assert at(pod, "securityContext.seccompProfile.type") == "RuntimeDefault"
        context = at(pod, "containers.0.securityContext")
        assert at(context, "readOnlyRootFilesystem") is True
        assert at(context, "allowPrivilegeEscalation") is False
        assert at(context, "capabilities.drop") == ["ALL"]


@cases
def test_images_are_versions(values: Node) -> None:
    for template in pod_templates(ray_service(values)).values():
        image = str(at(template, "spec.containers.0.image"))
        tag = image.rpartition(":")[2]
        assert tag not in ("", "latest", image)


def test_the_schema_is_one() -> None:
    schema = (CHART / "values.schema.json").read_text()
    jsonschema_rs.meta.validate(yaml.safe_load(schema))


def test_a_gpu_is_only_where_it_was_asked_for() -> None:
    templates = pod_templates(ray_service(CASES["fleet"]))
    for group in ("head", "router", "small"):
        assert "nvidia.com/gpu" not in str(templates[group])
        assert str(at(templates[group], "spec.containers.0.image")).endswith("-cpu")
        assert "tolerations" not in at(templates[group], "spec")  # type: ignore[operator]
    for group, product in (("chat-v1", "A100-SXM4-80GB"), ("chat-v2", "H100-80GB-HBM3")):
        pod = at(templates[group], "spec")
        assert at(pod, "containers.0.resources.limits")["nvidia.com/gpu"] == "1"  # type: ignore[index]
        assert at(pod, "nodeSelector") == {"nvidia.com/gpu.product": f"NVIDIA-{product}"}
        assert "@sha256:" in str(at(pod, "containers.0.image"))


def test_a_budget_lets_one_pod_go_and_never_blocks_the_only_one() -> None:
    budgets = of_kind(render(CASES["fleet"]), "PodDisruptionBudget")
    kept = {
        at(b, "spec.selector.matchLabels.headpond/group"): at(b, "spec.minAvailable")
        for b in budgets
    }
    # A RayCluster has no scale, so Kubernetes takes counts of what stays, and nothing else.
    assert kept == {"router": 2, "small": 1, "chat-v1": 1}
    assert not of_kind(render(), "PodDisruptionBudget")


def test_doors_lead_to_the_service_that_kuberay_keeps() -> None:
    manifests = render(CASES["fleet"])
    (ingress,) = of_kind(manifests, "Ingress")
    backend = at(ingress, "spec.rules.0.http.paths.0.backend.service")
    assert backend == {"name": "demo-headpond-serve-svc", "port": {"number": 8000}}
    routes = {str(at(route, "metadata.name")): route for route in of_kind(manifests, "HTTPRoute")}
    references = at(routes["demo-headpond"], "spec.rules.0.backendRefs")
    assert references == [{"name": "demo-headpond-serve-svc", "port": 8000}]


def test_a_model_with_pods_of_its_own_is_an_inference_pool() -> None:
    manifests = render(CASES["fleet"])
    pools = {str(at(pool, "metadata.name")): pool for pool in of_kind(manifests, "InferencePool")}
    assert set(pools) == {"demo-headpond-chat-v1", "demo-headpond-chat-v2"}
    labels = at(pools["demo-headpond-chat-v1"], "spec.selector.matchLabels")
    template = pod_templates(ray_service(CASES["fleet"]))["chat-v1"]
    assert labels.items() <= at(template, "metadata.labels").items()  # type: ignore[attr-defined]


def test_policies_select_the_pods_they_are_for() -> None:
    manifests = render(CASES["fleet"])
    templates = pod_templates(ray_service(CASES["fleet"]))
    selected = {
        str(at(policy, "metadata.name")): {
            group
            for group, template in templates.items()
            if at(policy, "spec.podSelector.matchLabels").items()  # type: ignore[attr-defined]
            <= at(template, "metadata.labels").items()  # type: ignore[attr-defined]
        }
        for policy in of_kind(manifests, "NetworkPolicy")
    }
    assert selected == {
        "demo-headpond": set(templates),
        "demo-headpond-operator": set(templates),
        "demo-headpond-monitoring": {"head"},
    }
    restricted = next(p for p in of_kind(manifests, "NetworkPolicy") if "egress" in p["spec"])  # type: ignore[operator]
    assert "10.0.0.0/8" in str(at(restricted, "spec.egress"))


def test_who_may_ask_is_who_was_named() -> None:
    # Policies add up: one that is wider undoes all others.
    doors: list[tuple[str, str]] = []
    for policy in of_kind(render(CASES["fleet"]), "NetworkPolicy"):
        for rule in at(policy, "spec.ingress"):  # type: ignore[attr-defined]
            if {"port": "serve"} in rule.get("ports", []):
                component = policy["spec"]["podSelector"]["matchLabels"]  # type: ignore[index]
                doors.append((str(component.get("app.kubernetes.io/component")), str(rule["from"])))
    assert [(component, "gateways" in peers) for component, peers in doors] == [
        ("None", True),
        ("head", False),
    ]
    assert "monitoring" in doors[1][1]


def test_dashboards_and_alerts_are_taken_as_they_lie(tmp_path: Path) -> None:
    chart = tmp_path / "headpond"
    shutil.copytree(CHART, chart)
    (chart / "dashboards").mkdir(exist_ok=True)
    (chart / "dashboards/My_View.json").write_text('{"title": "{{ model }}"}\n')
    rule = "groups:\n- name: own\n  rules:\n  - {alert: A, expr: up == 0, annotations: {s: '{{ $value }}'}}\n"
    (chart / "files/alerts.yaml").write_text(rule)
    manifests = render(CASES["fleet"], chart=chart)
    (maps) = [
        m for m in of_kind(manifests, "ConfigMap") if "dashboard-my-view" in str(m["metadata"])
    ]
    assert at(maps, "0.data") == {"My_View.json": '{"title": "{{ model }}"}\n'}
    assert at(maps, "0.metadata.labels.grafana_dashboard") == "1"
    (rules,) = of_kind(manifests, "PrometheusRule")
    assert rules["spec"] == yaml.safe_load(rule)


def test_stores_of_the_charts_own_have_a_password_that_the_pods_know() -> None:
    values = {
        "jobs": {"enabled": True, "store": {"objects": "s3://b/p"}},
        "postgresql": {"enabled": True},
        "valkey": {"enabled": True},
        "gcsFaultTolerance": {"enabled": True},
    }
    manifests = render(values)
    secrets = {str(at(secret, "metadata.name")): secret for secret in of_kind(manifests, "Secret")}
    assert set(secrets) == {"demo-postgresql", "demo-valkey"}
    for secret in secrets.values():
        assert len(base64.b64decode(str(at(secret, "data.password")))) == 32
    (service,) = of_kind(manifests, "RayService")
    head = str(pod_templates(service)["head"])
    assert "{'name': 'demo-postgresql', 'key': 'password'}" in head
    options = at(service, "spec.rayClusterConfig.gcsFaultToleranceOptions")
    assert at(options, "redisPassword.valueFrom.secretKeyRef.name") == "demo-valkey"
    assert at(options, "redisAddress") == "redis://demo-valkey:6379"
    services = {str(at(one, "metadata.name")) for one in of_kind(manifests, "Service")}
    assert services == set(secrets)


def test_notes_say_what_is_open_and_what_is_off() -> None:
    told = rendered()["headpond/templates/NOTES.txt"]
    assert "ACCESS IS OPEN" in told
    assert "gcsFaultTolerance" in told
    assert "kubectl -n models port-forward service/demo-headpond-serve-svc 8000" in told
    fleet = rendered(CASES["fleet"])["headpond/templates/NOTES.txt"]
    assert "ACCESS" not in fleet
    assert "https://inference.example.org" in fleet


def test_a_first_bundle_or_key_changes_no_pod() -> None:
    plain = pod_templates(ray_service())
    bundle = CASES["manifest"]["bundles"]
    keyed = pod_templates(
        ray_service({"bundles": bundle, "keys": {"hashed": [{"key_sha256": "a" * 64}]}})
    )
    assert plain == keyed
