"""The second application of a model, and what a config that is applied later keeps."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from headpond.bundle.document import read_manifest
from headpond.bundle.manifest import Manifest
from headpond.errors import BundleError
from headpond.rollouts.changes import AliasState
from headpond.rollouts.log import RolloutLog
from headpond.rollouts.second import second_application
from headpond.rollouts.started import with_started
from headpond.testing.echo import write_echo_bundle
from headpond.testing.keys import MemoryKeys

FIRST = ServeApplicationSchema(
    name="echo",
    route_prefix="/models/echo",
    import_path="headpond.deployment:build",
    args={"bundle": "bundles/echo", "alias": "echo", "threads": 2},
)


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return read_manifest(write_echo_bundle(tmp_path / "echo", version="1.1.0"))


def test_it_is_the_first_one_with_another_bundle(manifest: Manifest) -> None:
    second = second_application(FIRST, "bundles/echo-1.1", manifest)
    assert (second.name, second.route_prefix) == ("echo-1-1-0", "/models/echo-1-1-0")
    assert second.args == {"bundle": "bundles/echo-1.1", "alias": "echo", "threads": 2}
    assert FIRST.args["bundle"] == "bundles/echo"


def test_the_bundle_that_is_served_already_has_no_second_application(manifest: Manifest) -> None:
    with pytest.raises(BundleError, match="serves bundles/echo already"):
        second_application(FIRST, "bundles/echo", manifest)


def config(*, weight: int) -> ServeDeploySchema:
    router = {
        "name": "router",
        "import_path": "headpond.router:build",
        "deployments": [{"name": "Router", "user_config": {"aliases": {"chat": {"echo": weight}}}}],
    }
    return ServeDeploySchema.model_validate({"applications": [router]})


def test_a_config_keeps_what_a_rollout_under_way_needs(manifest: Manifest) -> None:
    second = second_application(FIRST, "bundles/echo-1.1", manifest)
    idle = FIRST.model_copy(update={"name": "idle"})
    running = {app.name: app for app in (FIRST, second, idle)}
    log = RolloutLog(MemoryKeys())
    state = AliasState(name="chat", base={"echo": 100}, revisions=())
    log.append(state.set(second.name, datetime.now(UTC), share=0.1, guard=None, shadow=None))
    log.note_started(second.name)
    log.note_started("idle")
    kept = with_started(config(weight=100), log, running)
    assert [app.name for app in kept.applications] == ["router", "echo-1-1-0"]
    assert log.started() == ["echo-1-1-0"]
    overruled = with_started(config(weight=1), log, running)
    assert [app.name for app in overruled.applications] == ["router"]
    assert log.started() == []
