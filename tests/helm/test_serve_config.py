"""The values reach the platform's own arguments one to one."""

from __future__ import annotations

import json
from typing import cast

import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]
from fsspec.registry import _registry  # type: ignore[import-untyped]

from charts import CASES, CHART, Node, at, cases, pod_templates, ray_service, serve_config
from serve_configs import AUTOSCALING_FIELDS, checked


def applications(values: Node) -> dict[str, Node]:
    """The applications of some values, by name."""
    listed = cast("list[Node]", serve_config(values)["applications"])
    return {str(application["name"]): application for application in listed}


@cases
def test_serve_and_the_platform_take_it(values: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    # The image has s3fs, which the tests' environment does without.
    monkeypatch.setitem(_registry, "s3", MemoryFileSystem)
    schema = checked(serve_config(values))
    assert {"router"} < {application.name for application in schema.applications}


@cases
def test_a_replica_fits_the_pods_it_is_sent_to(values: Node) -> None:
    groups = cast("list[Node]", at(ray_service(values), "spec.rayClusterConfig.workerGroupSpecs"))
    by_label = {str(at(group, "labels.headpond/group")): group for group in groups}
    for application in applications(values).values():
        options = at(application, "deployments.0.ray_actor_options")
        group = by_label[str(at(options, "label_selector.headpond/group"))]
        limits = cast("Node", at(group, "template.spec.containers.0.resources.limits"))
        assert float(str(at(options, "num_cpus"))) <= float(str(limits["cpu"]))
        gpus = cast("Node", options).get("num_gpus", 0)
        assert int(str(gpus)) <= int(str(limits.get("nvidia.com/gpu", 0)))


def test_a_model_is_told_what_the_values_say() -> None:
    chat = applications(CASES["fleet"])["chat-v1"]
    assert chat["route_prefix"] == "/models/chat-8b"
    assert chat["args"] == {
        "bundle": "/models/chat-8b",
        "alias": "chat-8b",
        "device": "cuda",
        "state_bytes": "40GiB",
        "max_slots": 64,
        "threads": 4,
        "max_wait_s": 2,
        "settings": {
            "tenants": {"team-a": {"weight": 3}},
            "otlp_endpoint": "http://collector.observability:4318",
            "metrics_open": True,
            "keys_file": "/etc/headpond/keys/keys.yaml",
        },
    }
    deployment = at(chat, "deployments.0")
    assert at(deployment, "autoscaling_config.max_replicas") == 6
    # All of its pod, so that there is one replica for each.
    assert at(deployment, "ray_actor_options.num_cpus") == 8
    assert at(deployment, "ray_actor_options.num_gpus") == 1


def test_the_router_knows_every_model_and_the_split() -> None:
    router = applications(CASES["fleet"])["router"]
    assert at(router, "deployments.0.user_config.aliases") == {
        "all-minilm-l6-v2": {"embedding-minilm": 100},
        "streaming-words": {"speech-words": 100},
        "chat-8b": {"chat-v1": 100},
        "chat-8b-next": {"chat-v2": 100},
        "chat": {"chat-v1": 95, "chat-v2": 5},
    }


def test_settings_may_come_from_a_file_of_a_secret() -> None:
    values: Node = {"settingsSecret": {"name": "settings"}}
    told = {at(app, "args.settings") for app in applications(values).values()}
    assert told == {"/etc/headpond/settings/settings.yaml"}
    for template in pod_templates(ray_service(values)).values():
        pod = str(at(template, "spec"))
        assert "{'name': 'settings', 'mountPath': '/etc/headpond/settings'" in pod
        assert "'secretName': 'settings'" in pod


def test_router_and_workers_share_one_store() -> None:
    found = applications(CASES["fleet"])
    store = at(found["jobs"], "args.store")
    assert at(found["router"], "args.jobs") == store
    assert at(store, "database") == "postgresql://headpond@demo-postgresql:5432/headpond"
    assert "password" not in str(store)


def test_replacements_start_first_where_there_is_room() -> None:
    room = {at(app, "deployments.0.max_surge_percent") for name, app in applications({}).items()}
    assert room == {100}
    fixed = applications(CASES["fixed"]).values()
    assert {at(app, "deployments.0.max_surge_percent") for app in fixed} == {0}


def test_autoscaling_has_serves_names() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(schema["$defs"]["autoscaling"]["properties"]) <= AUTOSCALING_FIELDS
