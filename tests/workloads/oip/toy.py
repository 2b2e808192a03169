"""A toy workload over the protocol: it gives each row back, and how many bytes it has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headpond.backend import LocalBackend
from headpond.bundle.store import open_bundle
from headpond.engine import Immediate, Plan, Progress, Quantum
from headpond.errors import EngineFailed, InvalidRequest
from headpond.scheduling.loop import loop_for
from headpond.telemetry.metrics import Metrics
from headpond.testing.echo import record as echo_record
from headpond.testing.echo import write_echo_bundle
from headpond.units import Work
from headpond_workloads.oip.adapter import TensorAdapter, TensorModel, TensorRequest
from headpond_workloads.oip.datatypes import Datatype
from headpond_workloads.oip.errors import oip_unserved
from headpond_workloads.oip.routes import oip_routes
from headpond_workloads.oip.schema import TensorMetadata
from headpond_workloads.oip.tensor import Tensor

MODEL, BUNDLE, VERSION = "copy", "parrot", "1.0.0"
MOST_ROWS = 8
LABELS = ("ant", "bee", "cat")
ABOUT = TensorModel(
    platform="toy",
    inputs=(TensorMetadata(name="x", datatype=Datatype.FP32, shape=(-1, 3)),),
    outputs=(
        TensorMetadata(name="y", datatype=Datatype.FP32, shape=(-1, 3)),
        TensorMetadata(name="sizes", datatype=Datatype.INT64, shape=(-1,)),
    ),
)


@dataclass(frozen=True)
class RowItem:
    row: Tensor
    breaks: bool


@dataclass(frozen=True)
class AboutItem:
    pass


class CopyEngine:
    """Gives each row back in one step; breaks where it is told to."""

    def plan(self, item: RowItem | AboutItem, namespace: str) -> Plan[RowItem | AboutItem]:
        if isinstance(item, AboutItem):
            return Plan(shape={}, prepared=item, answer=Immediate(outputs=(ABOUT,)))
        if item.row.datatype is Datatype.UINT64:
            raise InvalidRequest("is too large a kind of number", param="inputs.x")
        return Plan(shape={"text_bytes": len(item.row.data), "chunks": 1}, prepared=item)

    def start(self, plan: Plan[RowItem | AboutItem]) -> RowItem:
        assert isinstance(plan.prepared, RowItem)
        return plan.prepared

    def step(self, quanta: Sequence[Quantum[RowItem]]) -> list[Progress[Tensor]]:
        return [self._advance(quantum.slot) for quantum in quanta]

    def preempt(self, slot: RowItem) -> int:
        return 0

    def release(self, slot: RowItem) -> None:
        pass

    def _advance(self, item: RowItem) -> Progress[Tensor]:
        if item.breaks:
            return Progress(error=EngineFailed("it broke"))
        work = Work(input_bytes=len(item.row.data), output_chunks=1)
        return Progress(outputs=(item.row,), finished=work)


def to_items(request: TensorRequest) -> list[RowItem]:
    rows = request.input("x", *Datatype).rows(MOST_ROWS)
    return [
        RowItem(row, breaks=request.parameters.get("breaks") == at) for at, row in enumerate(rows)
    ]


def from_outputs(request: TensorRequest, outputs: Sequence[Sequence[object]]) -> list[Tensor]:
    rows = [row for (row,) in outputs if isinstance(row, Tensor)]
    given = Tensor(
        name="y",
        datatype=rows[0].datatype,
        shape=(len(rows), *rows[0].shape),
        data=b"".join(row.data for row in rows),
        labels=LABELS,
    )
    sizes = [len(row.data) for row in rows]
    return [given, Tensor.of_numbers("sizes", Datatype.INT64, [len(rows)], sizes)]


def describe(payload: object) -> TensorModel:
    assert isinstance(payload, TensorModel)
    return payload


adapter = TensorAdapter(
    inputs=("x",),
    outputs=("y", "sizes"),
    to_items=to_items,
    from_outputs=from_outputs,
    about=AboutItem(),
    describe=describe,
    example={
        "inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [0.5, 0.25, 1]}]
    },
)

record = replace(
    echo_record,
    routes=oip_routes(adapter),
    unserved=oip_unserved,
    request=replace(echo_record.request, max_items=MOST_ROWS),
)


@asynccontextmanager
async def copying(folder: Path) -> AsyncIterator[LocalBackend]:
    """Run the toy behind the name `copy`; the bundle's own name is `parrot`."""
    manifest = open_bundle(write_echo_bundle(folder / BUNDLE), cache=folder / "cache").manifest
    metrics = Metrics(record, bundle=manifest.ref, model=MODEL)
    loop = loop_for(
        record,
        CopyEngine(),
        record.bind(manifest.model, manifest.execution.dtype),
        state_bytes=2**24,
        max_slots=MOST_ROWS,
        bundle=manifest.ref,
        observer=metrics.observe,
    )
    loop.start()
    yield LocalBackend(
        record=record, manifest=manifest, alias=MODEL, loop=loop, metrics_source=metrics
    )
    await loop.stop(0.0)
