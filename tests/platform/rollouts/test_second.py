"""The second application of a model, and what a config that is applied later keeps."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headpond.bundle.document import read_manifest
from headpond.bundle.manifest import Manifest
from headpond.errors import BundleError
from headpond.rollouts.changes import AliasState
from headpond.rollouts.log import RolloutLog
from headpond.rollouts.second import Config, second_application
from headpond.rollouts.started import with_started
from headpond.testing.echo import write_echo_bundle
from headpond.testing.keys import MemoryKeys

ARGS = {"bundle": "bundles/echo", "alias": "echo", "threads": 2}
FIRST = {
    "name": "echo",
    "route_prefix": "/models/echo",
    "import_path": "headpond.deployment:build",
    "args": ARGS,
}


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return read_manifest(write_echo_bundle(tmp_path / "echo", version="1.1.0"))


def test_it_is_the_first_one_with_another_bundle(manifest: Manifest) -> None:
    second = second_application(FIRST, "bundles/echo-1.1", manifest)
    assert second == {
        **FIRST,
        "name": "echo-1-1-0",
        "route_prefix": "/models/echo-1-1-0",
        "args": {**ARGS, "bundle": "bundles/echo-1.1"},
    }


def test_the_third_one_is_named_like_the_second(manifest: Manifest) -> None:
    before = {**FIRST, "name": "echo-7b-1-0-9-rc1", "route_prefix": "/models/echo-7b-1-0-9-rc1"}
    third = second_application(before, "bundles/echo-1.1", manifest)
    assert (third["name"], third["route_prefix"]) == ("echo-7b-1-1-0", "/models/echo-7b-1-1-0")


def test_an_application_without_a_direct_path_has_a_second_one_without(manifest: Manifest) -> None:
    second = second_application({**FIRST, "route_prefix": None}, "bundles/echo-1.1", manifest)
    assert second["route_prefix"] is None


def test_the_bundle_that_is_served_already_has_no_second_application(manifest: Manifest) -> None:
    with pytest.raises(BundleError, match="serves bundles/echo already"):
        second_application(FIRST, "bundles/echo", manifest)


def config(*, weight: int) -> Config:
    router = {
        "name": "router",
        "import_path": "headpond.router:build",
        "deployments": [{"name": "Router", "user_config": {"aliases": {"chat": {"echo": weight}}}}],
    }
    return {"applications": [router]}


def names(config: Config) -> list[str]:
    apps = config["applications"]
    assert isinstance(apps, list)
    return [app["name"] for app in apps]


def test_a_config_keeps_what_a_rollout_under_way_needs(manifest: Manifest) -> None:
    second = second_application(FIRST, "bundles/echo-1.1", manifest)
    running = {"echo": FIRST, "echo-1-1-0": second, "idle": {**FIRST, "name": "idle"}}
    log = RolloutLog(MemoryKeys())
    state = AliasState(name="chat", base={"echo": 100}, revisions=())
    log.append(state.set("echo-1-1-0", datetime.now(UTC), share=0.1, guard=None, shadow=None))
    log.note_started("echo-1-1-0")
    log.note_started("idle")
    kept = with_started(config(weight=100), log, running)
    assert names(kept) == ["router", "echo-1-1-0"]
    assert log.started() == ["echo-1-1-0"]
    overruled = with_started(config(weight=1), log, running)
    assert names(overruled) == ["router"]
    assert log.started() == []
