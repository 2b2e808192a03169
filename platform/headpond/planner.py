"""The memory plan of a bundle on a machine: what is static, and how many fit at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headpond.bundle.manifest import Manifest
from headpond.errors import BundleError
from headpond.record import Continuous, WorkloadRecord


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Bytes of one replica.

    Attributes:
        process_bytes: What the process takes besides: Python, Ray, the engine's libraries; 0
            where the workload does not say.
        static_bytes: Resident whatever the load (weights).
        state_bytes: The budget for retained state.
        largest_request_bytes: State of one request at every limit.
        concurrency: How many of the largest requests fit at once.
    """

    process_bytes: int
    static_bytes: int
    state_bytes: int
    largest_request_bytes: int
    concurrency: int

    @property
    def idle_bytes(self) -> int:
        """What a replica takes before any request comes."""
        return self.process_bytes + self.static_bytes

    @property
    def full_bytes(self) -> int:
        """What it takes when requests hold all that they may."""
        return self.idle_bytes + self.state_bytes


def plan_memory(
    record: WorkloadRecord, manifest: Manifest, *, state_bytes: int, available_bytes: int
) -> MemoryPlan:
    """Return what a replica of the bundle will hold.

    Raises:
        BundleError: It does not fit; the message has the numbers.
    """
    plan = memory_plan(record, manifest, state_bytes)
    needed = plan.static_bytes + plan.state_bytes
    if needed > available_bytes:
        raise BundleError(
            f"{manifest.ref} needs {_mib(needed)} ({_mib(plan.static_bytes)} static and "
            f"{_mib(state_bytes)} for requests), and {_mib(available_bytes)} is available",
            param="state_bytes",
        )
    return plan


def memory_plan(record: WorkloadRecord, manifest: Manifest, state_bytes: int) -> MemoryPlan:
    """Return what a replica of the bundle will hold, wherever that is."""
    state = record.bind(manifest.model, manifest.execution.dtype)
    largest = state.request_bytes(*_largest(record, {**manifest.model, **manifest.limits}))
    process = record.fit.process_bytes
    return MemoryPlan(
        process_bytes=0 if process is None else process(manifest.execution),
        static_bytes=sum(manifest.model[symbol] for symbol in record.fit.static_bytes),
        state_bytes=state_bytes,
        largest_request_bytes=largest,
        concurrency=state_bytes // largest if largest else 0,
    )


def _largest(record: WorkloadRecord, symbols: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return the shape of a request at every limit, and how far it goes along the axis."""
    shape = {}
    for dim in record.request.dims:
        limit = symbols[dim.limit] if isinstance(dim.limit, str) else dim.limit
        shape[dim.name] = limit or 1
    if not isinstance(record.batching, Continuous):
        return shape, shape[record.batching.axis]
    # Dimensions that share one limit (prompt and output share the context) add up to it once.
    limits = {dim.name: dim.limit for dim in record.request.dims}
    extent = {limits[name] or name: shape[name] for name in record.batching.extent}
    return shape, sum(extent.values())


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
