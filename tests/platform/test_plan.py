"""The planner: loads, devices, rooflines, and the command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ByteSize
from typer.testing import CliRunner

from headpond.bundle.document import read_manifest
from headpond.bundle.manifest import Execution, Manifest
from headpond.capacity import Capacity, Load, plan_capacity
from headpond.cli import app
from headpond.devices import Device
from headpond.effort import Effort
from headpond.errors import InvalidRequest
from headpond.record import WorkloadRecord
from headpond.registry import workload, workloads
from headpond.testing.echo import record, write_echo_bundle

BUNDLES = Path(__file__).parents[2] / "bundles"
SLOW = Device(
    name="slow",
    kind="cpu",
    memory_bytes=ByteSize(10_000),
    bytes_per_s=1_000.0,
    operations_per_s={"uint8": 100.0, "int8": 400.0},
)


def efforts(manifest: Manifest, shape: Mapping[str, int]) -> Mapping[str, Effort]:
    """Say a piece by reading 500 bytes, and 10 of its own, in 20 operations."""
    chunks = shape["chunks"]
    return {
        "speak": Effort(
            steps=chunks, shared_bytes=500, own_bytes=10 * chunks, operations=20 * chunks
        )
    }


def process_bytes(execution: Execution) -> int:
    return 1_000


TOLD = replace(record, efforts=efforts, fit=replace(record.fit, process_bytes=process_bytes))


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return read_manifest(write_echo_bundle(tmp_path / "echo"))


def planned(manifest: Manifest, load: str, *, state_bytes: int = 4_000) -> Capacity:
    return plan_capacity(
        TOLD,
        manifest,
        SLOW,
        Load.parse(load, TOLD, manifest),
        state_bytes=state_bytes,
        most_at_once=16,
        threads=1,
        efficiency=0.5,
    )


def test_a_load_is_read_with_what_it_does_not_say(manifest: Manifest) -> None:
    load = Load.parse("rate=90/min, text_bytes=7", record, manifest)
    assert load.rate_per_s == 1.5
    assert load.shape == {"text_bytes": 7, "chunks": 4096}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed=3", "'speed' is none of rate, text_bytes, chunks"),
        ("text_bytes=-1", "whole number"),
        ("text_bytes", "whole number"),
        ("rate=fast", "5/s"),
        ("rate=0/s", "5/s"),
    ],
)
def test_a_load_that_means_nothing_is_refused(manifest: Manifest, text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as raised:
        Load.parse(text, record, manifest)
    assert raised.value.param == "load"


def test_the_floor_is_the_slower_of_reading_and_computing(manifest: Manifest) -> None:
    capacity = planned(manifest, "text_bytes=500 chunks=4")
    assert capacity.phase_floor_s == {"speak": pytest.approx((4 * 500 + 40) / 1000)}
    assert capacity.at_once == 8
    # Eight at once: reading 2.32 s, computing 6.4 s.
    assert capacity.most_per_s == pytest.approx(8 / 6.4)


def test_replicas_are_for_the_load_at_the_efficiency(manifest: Manifest) -> None:
    assert planned(manifest, "rate=1/s text_bytes=500 chunks=4").replicas == 2
    assert planned(manifest, "rate=10/s text_bytes=500 chunks=4").replicas == 16


def test_what_does_not_fit_says_so(manifest: Manifest) -> None:
    assert planned(manifest, "text_bytes=500 chunks=4").fits
    assert not planned(manifest, "text_bytes=500 chunks=4", state_bytes=9_500).fits
    too_large = planned(manifest, "text_bytes=5000 chunks=4")
    assert (too_large.at_once, too_large.fits, too_large.replicas) == (0, False, None)


def test_products_in_another_dtype_go_at_its_speed() -> None:
    assert SLOW.operations("int8", threads=3) == 1200.0
    assert SLOW.operations("float64", threads=1) == 100.0


def test_a_device_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "{name: mine, memory_bytes: 16GiB, bytes_per_s: 3.0e+11, operations_per_s: {float32: 1.0e+13}}"
    )
    assert Device.find(str(path)).memory_bytes == 16 * 2**30
    path.write_text("{name: mine, memory_bytes: 0}")
    with pytest.raises(InvalidRequest, match="memory_bytes"):
        Device.find(str(path))
    with pytest.raises(InvalidRequest, match="h200"):
        Device.find("abacus")


@pytest.mark.parametrize("name", sorted(path.name for path in BUNDLES.iterdir()))
def test_every_bundle_can_be_planned_on_its_devices(name: str) -> None:
    manifest = read_manifest(BUNDLES / name)
    found = workload(manifest.workload)
    for device in ("cpu", "h200", "l4"):
        if Device.find(device).kind not in found.fit.devices:
            continue
        capacity = plan_capacity(
            found,
            manifest,
            Device.find(device),
            Load.parse("rate=1/s", found, manifest),
            state_bytes=2**30,
            most_at_once=4,
            threads=2,
            efficiency=0.5,
        )
        assert capacity.fits
        assert capacity.latency_floor_s
        assert set(capacity.phase_floor_s) <= {phase.name for phase in found.phases}


@pytest.mark.parametrize("found", workloads().values(), ids=lambda found: found.name)
def test_every_workload_says_what_its_process_takes(found: WorkloadRecord) -> None:
    assert found.fit.process_bytes is not None
    assert found.efforts is not None


def test_the_command_prints_a_plan_and_fails_where_it_does_not_fit() -> None:
    bundle = str(BUNDLES / "smollm2-135m-instruct")
    load = "rate=5/s prompt_tokens=500 output_tokens=200"
    runner = CliRunner()
    good = runner.invoke(app, ["plan", bundle, "--device", "h200", "--load", load, "--json"])
    plan = json.loads(good.stdout)
    assert good.exit_code == 0
    assert plan["load"]["shape"]["max_output_tokens"] == 200
    assert set(plan["phase_floor_s"]) == {"prefill", "decode"}
    assert plan["replicas"] == 1
    bad = runner.invoke(app, ["plan", bundle, "--state", "10TiB"])
    assert bad.exit_code == 1
    assert "MiB are needed" in bad.stdout
    assert runner.invoke(app, ["plan", bundle, "--device", "abacus"]).exit_code == 1
