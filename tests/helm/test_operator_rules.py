"""Rules that no schema has: the operator tells of them in an event, and does nothing."""

from __future__ import annotations

import re
from typing import cast

import pytest

from charts import CASES, Node, at, cases, pod_templates, ray_service

RESOURCES = {"num-cpus", "num-gpus", "memory", "resources"}


def groups(service: Node) -> list[Node]:
    """The worker groups of a RayService."""
    return cast("list[Node]", at(service, "spec.rayClusterConfig.workerGroupSpecs"))


def env_names(template: Node) -> set[str]:
    """The variables of a pod's Ray container."""
    listed = cast("list[Node]", at(template, "spec.containers.0.env"))
    names = [str(variable["name"]) for variable in listed]
    assert len(names) == len(set(names))
    return set(names)


@cases
def test_the_name_is_short_enough(values: Node) -> None:
    name = str(at(ray_service(values), "metadata.name"))
    assert len(name) <= 47
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)


@cases
def test_groups_have_a_least_and_a_most(values: Node) -> None:
    service = ray_service(values)
    scaled = at(service, "spec.rayClusterConfig.enableInTreeAutoscaling")
    for group in groups(service):
        least, most = int(str(group["minReplicas"])), int(str(group["maxReplicas"]))
        assert 0 <= least <= most
        assert least <= int(str(group["replicas"])) <= most
        if not scaled:
            assert least == most


@cases
def test_resources_are_said_once(values: Node) -> None:
    service = ray_service(values)
    head = cast("Node", at(service, "spec.rayClusterConfig.headGroupSpec"))
    for group in [head, *groups(service)]:
        params = cast("Node", group["rayStartParams"])
        assert all(isinstance(value, str) for value in params.values())
        assert "labels" not in params
        assert not (RESOURCES & set(params) and "resources" in group)


@cases
def test_the_operator_alone_sets_its_variables(values: Node) -> None:
    service = ray_service(values)
    for template in pod_templates(service).values():
        operators = {"RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "REDIS_USERNAME", "RAY_AUTH_MODE"}
        assert not operators & env_names(template)


@cases
def test_the_upgrade_strategy_is_the_services(values: Node) -> None:
    service = ray_service(values)
    assert "upgradeStrategy" not in cast("Node", at(service, "spec.rayClusterConfig"))
    assert at(service, "spec.upgradeStrategy.type")


@cases
def test_the_head_serves_no_one_and_its_service_keeps_its_name(values: Node) -> None:
    service = ray_service(values)
    assert at(service, "spec.excludeHeadPodFromServeSvc") is True
    head = cast("Node", at(service, "spec.rayClusterConfig.headGroupSpec"))
    assert at(head, "rayStartParams.num-cpus") == "0"
    assert "headService" not in head


def test_an_upgrade_in_steps_has_all_it_needs() -> None:
    service = ray_service(CASES["steps"])
    options = cast("Node", at(service, "spec.upgradeStrategy.clusterUpgradeOptions"))
    assert options["gatewayClassName"]
    step, surge = int(str(options["stepSizePercent"])), int(str(options["maxSurgePercent"]))
    assert 0 < step <= surge <= 100
    assert int(str(options["intervalSeconds"])) > 0
    assert at(service, "spec.rayClusterConfig.enableInTreeAutoscaling") is True


def test_token_auth_needs_a_ray_that_has_it() -> None:
    cluster = at(ray_service(), "spec.rayClusterConfig")
    assert at(cluster, "authOptions.mode") == "token"
    version = tuple(int(part) for part in str(at(cluster, "rayVersion")).split("."))
    assert version >= (2, 52, 0)


def test_a_group_that_is_appended_leaves_the_others_as_they_are() -> None:
    model = {
        "name": "more",
        "workload": "embedding",
        "bundle": "all-minilm-l6-v2",
        "alias": "more",
        "pods": {"resources": {"cpu": 2, "memory": "4Gi"}},
    }
    fleet = CASES["fleet"]
    before = ray_service(fleet)
    after = ray_service({**fleet, "models": [*cast("list[Node]", fleet["models"]), model]})
    # So KubeRay takes it into the running cluster; else it would start a new one.
    assert groups(after)[: len(groups(before))] == groups(before)
    heads = [at(one, "spec.rayClusterConfig.headGroupSpec") for one in (before, after)]
    assert heads[0] == heads[1]


@pytest.mark.parametrize("version", ["0.1.0", "9.9.9"])
def test_labels_of_pods_outlive_the_charts_version(version: str) -> None:
    for template in pod_templates(ray_service()).values():
        assert version not in str(at(template, "metadata.labels"))
