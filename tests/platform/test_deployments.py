"""The configs in `deployments/` are what Serve and the platform take, and hang together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml
from pydantic import ByteSize, TypeAdapter

from headpond.bundle.document import read_manifest
from headpond.planner import plan_memory
from headpond.registry import workloads
from serve_configs import checked

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "deployments").glob("*.yaml"))
MODEL = "headpond.deployment:build"
GPU_BYTES, CONTEXT_BYTES = 16 * 2**30, 700 * 2**20
"""The GPU that gpu.yaml says it is for, and what each process on it takes besides."""

Node = dict[str, object]
each = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
size = TypeAdapter(ByteSize)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADPOND_API_KEY", "a key")


def applications(path: Path) -> dict[str, Node]:
    """The applications of a file, by name."""
    listed = yaml.safe_load(path.read_text(encoding="utf-8"))["applications"]
    found = {application["name"]: application for application in listed}
    assert len(found) == len(listed)
    return found


def models(path: Path) -> Iterator[tuple[Node, Node, Node]]:
    """The models' applications, with their arguments and the options of their actors."""
    for application in applications(path).values():
        if application["import_path"] == MODEL:
            (deployment,) = cast("list[Node]", application.get("deployments", [{}]))
            options = cast("Node", deployment.get("ray_actor_options", {}))
            yield application, cast("Node", application["args"]), options


def aliases(path: Path) -> dict[str, dict[str, int]]:
    """The router's table."""
    (router,) = cast("list[Node]", applications(path)["router"]["deployments"])
    return cast("dict[str, dict[str, int]]", cast("Node", router["user_config"])["aliases"])


def test_there_is_one_for_each_kind_of_place() -> None:
    assert {path.stem for path in FILES} == {"local", "cpu", "gpu", "fleet"}


@each
def test_serve_and_the_platform_take_it(path: Path) -> None:
    schema = checked(yaml.safe_load(path.read_text(encoding="utf-8")))
    prefixes = [application.route_prefix for application in schema.applications]
    assert len(prefixes) == len(set(prefixes))


@each
def test_every_alias_leads_to_a_model_and_every_model_has_one(path: Path) -> None:
    targets = {target for weights in aliases(path).values() for target in weights}
    assert targets == {str(application["name"]) for application, _, _ in models(path)}


@each
def test_every_workload_is_served_on_a_device_that_it_has(path: Path) -> None:
    served = set()
    for application, args, _ in models(path):
        workload = read_manifest(ROOT / str(args["bundle"])).workload
        served.add(workload)
        assert args.get("device", "cpu") in workloads()[workload].fit.devices
        assert application["route_prefix"] == f"/models/{args['alias']}"
    assert served == set(workloads())


@each
def test_what_is_reserved_is_what_is_used(path: Path) -> None:
    for _, args, options in models(path):
        # Options that a config gives take the place of all of the code's.
        if options:
            count = int(str(args.get("tensor_parallel", 1)))
            assert options["num_cpus"] == int(str(args.get("threads", 1))) * count
            assert (float(str(options.get("num_gpus", 0))) > 0) == (args.get("device") == "cuda")
            assert count == 1 or options["num_gpus"] == count


@each
def test_batches_are_taken_in_where_workers_look(path: Path) -> None:
    found = applications(path)
    router = cast("Node", found["router"]["args"])
    worker = cast("Node", found["jobs"]["args"])
    assert router["jobs"] == worker.get("store", {})


@each
def test_who_listens_everywhere_wants_a_key(path: Path) -> None:
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    if config["http_options"]["host"] == "127.0.0.1":
        return
    router = cast("Node", applications(path)["router"]["args"])
    for settings in (router["settings"], *(args["settings"] for _, args, _ in models(path))):
        # One file, or keys of their own; the direct path checks them itself.
        assert settings == router["settings"]
        assert isinstance(settings, str) or settings["keys"]  # type: ignore[index]


@pytest.mark.parametrize("name", ["local", "cpu", "gpu"])
def test_one_machines_config_is_placed_by_up(name: str) -> None:
    # What `headpond up` lets Ray reserve unless it is told otherwise.
    reserved = 0
    for application, args, _ in models(ROOT / f"deployments/{name}.yaml"):
        (deployment,) = cast("list[Node]", application.get("deployments", [{}]))
        reserved += int(str(deployment.get("num_replicas", 1))) * int(str(args.get("threads", 1)))
    assert reserved <= 16


def test_what_shares_the_gpu_fits_on_it() -> None:
    parts, needed = 0.0, 0
    for _, args, options in models(ROOT / "deployments/gpu.yaml"):
        if args.get("device") == "cuda":
            manifest = read_manifest(ROOT / str(args["bundle"]))
            state_bytes = size.validate_python(args.get("state_bytes", "256MiB"))
            plan = plan_memory(
                workloads()[manifest.workload],
                manifest,
                state_bytes=state_bytes,
                available_bytes=GPU_BYTES,
            )
            parts += float(str(options["num_gpus"]))
            needed += plan.static_bytes + plan.state_bytes + CONTEXT_BYTES
    assert 0 < parts <= 1.0001
    assert 0 < needed <= GPU_BYTES


def test_the_fleet_scales_and_has_a_canary() -> None:
    path = ROOT / "deployments/fleet.yaml"
    scaled = [app for app, _, _ in models(path) if "autoscaling_config" in str(app)]
    assert len(scaled) == len(list(models(path)))
    assert any(len(weights) > 1 for weights in aliases(path).values())
    bundles = [read_manifest(ROOT / str(args["bundle"])).workload for _, args, _ in models(path)]
    assert any(bundles.count(workload) > 1 for workload in bundles)
