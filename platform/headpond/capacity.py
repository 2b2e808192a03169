"""Capacity: what a bundle can do on a device at best, and how many replicas a load takes.

A roofline: a phase takes at least as long as its memory is read, and as its operations are
computed. Real engines take longer; how much longer is measured in docs/planning.md, and said
by whoever plans as an efficiency.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from headpond.bundle.manifest import Manifest
from headpond.devices import Device
from headpond.errors import InvalidRequest
from headpond.planner import MemoryPlan, memory_plan
from headpond.record import Continuous, WorkloadRecord

_PER_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|min|h)")


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is asked for.

    Attributes:
        rate_per_s: Items that come in a second.
        shape: The dimensions of each.
    """

    rate_per_s: float
    shape: Mapping[str, int]

    @classmethod
    def parse(cls, text: str, record: WorkloadRecord, manifest: Manifest) -> Load:
        """Read `rate=5/s prompt_tokens=500 output_tokens=200`.

        A dimension `max_x` may be called `x`. One that is not said is as large as the bundle
        allows, where it has a limit; else 1 along the batching axis, and 0.

        Raises:
            InvalidRequest: Names the part that can't be read.
        """
        rate_per_s, shape = 1.0, _unsaid(record, manifest)
        for part in text.replace(",", " ").split():
            name, _, value = part.partition("=")
            if name == "rate":
                rate_per_s = _rate(value)
                continue
            dim = name if name in shape else f"max_{name}"
            if dim not in shape:
                known = ", ".join(["rate", *shape])
                raise InvalidRequest(f"{name!r} is none of {known}", param="load")
            if not value.isascii() or not value.isdigit():
                raise InvalidRequest(f"{name} must be a whole number, not {value!r}", param="load")
            shape[dim] = int(value)
        return cls(rate_per_s=rate_per_s, shape=shape)


def _rate(value: str) -> float:
    found = _RATE.fullmatch(value)
    if found is None or not float(found[1]):
        raise InvalidRequest(
            f"rate must read like 5/s, 90/min or 10/h, not {value!r}", param="load"
        )
    return float(found[1]) / _PER_S[found[2]]


def _unsaid(record: WorkloadRecord, manifest: Manifest) -> dict[str, int]:
    symbols = {**manifest.model, **manifest.limits}
    needed = {record.batching.axis}
    if isinstance(record.batching, Continuous):
        needed |= set(record.batching.extent)
    shape = {}
    for dim in record.request.dims:
        limit = symbols[dim.limit] if isinstance(dim.limit, str) else dim.limit
        shape[dim.name] = limit or int(dim.name in needed)
    return shape


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What a bundle does on a device.

    Attributes:
        memory: Bytes of one replica.
        needed_bytes: What of that the device has to hold.
        fits: Whether it does, and at least one item of the load fits the state.
        item_bytes: State of one item of the load.
        at_once: How many of them run at once.
        phase_floor_s: The least seconds of each device phase, of an item alone; empty where
            the workload does not say.
        latency_floor_s: Their sum.
        most_per_s: Items a second of one replica at best, so many at once; None where the
            workload does not say.
        replicas: How many the load takes at the efficiency; None where that can't be said.
    """

    memory: MemoryPlan
    needed_bytes: int
    fits: bool
    item_bytes: int
    at_once: int
    phase_floor_s: Mapping[str, float]
    latency_floor_s: float | None
    most_per_s: float | None
    replicas: int | None


def plan_capacity(
    record: WorkloadRecord,
    manifest: Manifest,
    device: Device,
    load: Load,
    *,
    state_bytes: int,
    most_at_once: int,
    threads: int,
    efficiency: float,
) -> Capacity:
    """Plan a bundle on a device for a load.

    Args:
        record: The bundle's workload.
        manifest: The bundle.
        device: Where it runs.
        load: What comes.
        state_bytes: The budget for what requests hold.
        most_at_once: The most items that share a step or a batch.
        threads: Cores, of a CPU.
        efficiency: The share of the floor's speed that is reached, above 0.

    Raises:
        BundleError: The bundle does not bind to the record.
        InvalidRequest: The workload has no engine for the device.
    """
    if device.kind not in record.fit.devices:
        kinds = ", ".join(record.fit.devices)
        raise InvalidRequest(
            f"{record.name} runs on {kinds}, and {device.name} is a {device.kind}", param="device"
        )
    memory = memory_plan(record, manifest, state_bytes)
    # A GPU holds what is computed with; the process is the machine's to hold.
    process_bytes = memory.process_bytes if device.kind == "cpu" else 0
    needed = process_bytes + memory.static_bytes + state_bytes
    item_bytes = _item_bytes(record, manifest, load.shape)
    at_once = min(most_at_once, state_bytes // item_bytes if item_bytes else most_at_once)
    fits = needed <= device.memory_bytes - device.reserved_bytes and at_once > 0
    floors = _floors(record, manifest, device, load.shape, items=1, threads=threads)
    together = _floors(record, manifest, device, load.shape, items=at_once, threads=threads)
    most_per_s = at_once / sum(together.values()) if together and at_once else None
    return Capacity(
        memory=memory,
        needed_bytes=needed,
        fits=fits,
        item_bytes=item_bytes,
        at_once=at_once,
        phase_floor_s=floors,
        latency_floor_s=sum(floors.values()) if floors else None,
        most_per_s=most_per_s,
        replicas=None
        if most_per_s is None or not fits
        else math.ceil(load.rate_per_s / (most_per_s * efficiency)),
    )


def _item_bytes(record: WorkloadRecord, manifest: Manifest, shape: Mapping[str, int]) -> int:
    """Return the state of one item, at the most that its dimensions let it hold."""
    state = record.bind(manifest.model, manifest.execution.dtype)
    if not isinstance(record.batching, Continuous):
        return state.request_bytes(shape, shape[record.batching.axis])
    extent = [dim for dim in record.request.dims if dim.name in record.batching.extent]
    held = sum(shape[dim.name] for dim in extent)
    if all(dim.limit for dim in extent):
        # Dimensions that share one limit (prompt and output share the context) hold it once.
        most = _unsaid(record, manifest)
        held = min(held, sum({dim.limit: most[dim.name] for dim in extent}.values()))
    return state.request_bytes(shape, held)


def _floors(
    record: WorkloadRecord,
    manifest: Manifest,
    device: Device,
    shape: Mapping[str, int],
    *,
    items: int,
    threads: int,
) -> dict[str, float]:
    if record.efforts is None:
        return {}
    own = manifest.execution.dtype
    return {
        phase: effort.floor_s(
            items,
            bytes_per_s=device.bytes_per_s,
            operations_per_s=device.operations(effort.dtype or own, threads),
        )
        for phase, effort in record.efforts(manifest, shape).items()
    }
