"""`headpond plan`: whether a bundle fits a device, how many at once, how fast, how many replicas.

Exit codes: 0 it fits, 1 it does not, or can't be planned, 2 wrong usage.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ByteSize, TypeAdapter, ValidationError
from rich.table import Table

from headpond.bundle.document import read_manifest
from headpond.bundle.loading import bind
from headpond.bundle.manifest import Manifest
from headpond.capacity import Capacity, Load, plan_capacity
from headpond.cli.console import refusals, result_console
from headpond.cli.options import AsJson
from headpond.devices import Device
from headpond.errors import BundleError
from headpond.registry import workload as find_record

_MIB = 2**20
_WHOLE_MS = 100
_SIZE = TypeAdapter(ByteSize)


def plan(
    location: Annotated[
        Path, typer.Argument(help="The bundle's folder, or its bundle.yaml.", exists=True)
    ],
    *,
    device: Annotated[
        str, typer.Option(help="cpu, h200, h100, a100-80, a100-40, l40s, l4, or a YAML file.")
    ] = "cpu",
    load: Annotated[
        str, typer.Option(help="As 'rate=5/s prompt_tokens=500 output_tokens=200'.")
    ] = "rate=1/s",
    state: Annotated[str, typer.Option(help="Memory for requests, as `state_bytes`.")] = "256MiB",
    slots: Annotated[int, typer.Option(help="Most at once, as `max_slots`.", min=1)] = 16,
    threads: Annotated[int, typer.Option(help="Cores of a CPU, as `threads`.", min=1)] = 1,
    efficiency: Annotated[
        float | None,
        typer.Option(
            help="Share of the floor's speed reached; the workload's measured one if not said.",
            min=0.001,
            max=1.0,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a bundle fits, what a request holds, the floor latency, and replicas."""
    with refusals():
        manifest = read_manifest(location)
        if not manifest.model:
            raise BundleError("the bundle is not locked: `headpond bundle lock` fills its model in")
        record = find_record(manifest.workload)
        bind(record, manifest)
        chosen = Device.find(device)
        reached = record.fit.efficiency if efficiency is None else efficiency
        wanted = Load.parse(load, record, manifest)
        capacity = plan_capacity(
            record,
            manifest,
            chosen,
            wanted,
            state_bytes=_size(state),
            most_at_once=slots,
            threads=threads,
            efficiency=reached,
        )
    if as_json:
        _print_json(manifest, chosen, wanted, capacity)
    else:
        _print_table(manifest, chosen, wanted, capacity, reached)
    raise typer.Exit(0 if capacity.fits else 1)


def _size(text: str) -> int:
    try:
        return int(_SIZE.validate_python(text))
    except ValidationError:
        raise typer.BadParameter(
            f"{text!r} is no size, as 512MiB is", param_hint="--state"
        ) from None


def _print_json(manifest: Manifest, device: Device, load: Load, capacity: Capacity) -> None:
    document = {
        "bundle": manifest.ref,
        "device": device.model_dump(),
        "load": asdict(load),
        **asdict(capacity),
    }
    document["memory"] |= {
        "idle_bytes": capacity.memory.idle_bytes,
        "full_bytes": capacity.memory.full_bytes,
    }
    typer.echo(json.dumps(document))


def _print_table(
    manifest: Manifest, device: Device, load: Load, capacity: Capacity, efficiency: float
) -> None:
    memory = capacity.memory
    shape = ", ".join(f"{name} {value:,}" for name, value in load.shape.items())
    rows = Table(show_header=False, box=None)
    rows.add_row("bundle", f"{manifest.ref} in {manifest.execution.dtype}")
    usable = _mib(device.memory_bytes - device.reserved_bytes)
    rows.add_row("device", f"{device.name}, {usable} ({device.source})")
    rows.add_row("load", f"{load.rate_per_s:g}/s of {shape}")
    rows.add_row("fits", _fits(capacity))
    where = "" if device.kind == "cpu" else ", in the machine's own memory"
    rows.add_row("  process", f"{_mib(memory.process_bytes)}{where}")
    rows.add_row("  weights", _mib(memory.static_bytes))
    rows.add_row("  requests", f"{_mib(memory.state_bytes)} at most")
    rows.add_row("a request", f"{_mib(capacity.item_bytes)} of state")
    rows.add_row("at once", f"{capacity.at_once}")
    for phase, floor_s in capacity.phase_floor_s.items():
        rows.add_row(f"floor, {phase}", _ms(floor_s))
    if capacity.latency_floor_s is None:
        rows.add_row("floor", "the workload does not say")
    else:
        rows.add_row("floor, in all", _ms(capacity.latency_floor_s))
    if capacity.most_per_s is not None:
        rows.add_row(
            "a replica", f"{capacity.most_per_s:,.3g}/s at best, {capacity.at_once} at once"
        )
    if capacity.replicas is not None:
        rows.add_row("replicas", f"{capacity.replicas} at {efficiency:.2g} of the floor's speed")
    result_console().print(rows)


def _fits(capacity: Capacity) -> str:
    if capacity.fits:
        return f"[green]yes[/green], {_mib(capacity.needed_bytes)} of it"
    if not capacity.at_once:
        return "[red]no[/red]: one request holds more than there is for all"
    return f"[red]no[/red]: {_mib(capacity.needed_bytes)} are needed"


def _mib(count: int) -> str:
    return f"{count / _MIB:,.1f} MiB"


def _ms(seconds: float) -> str:
    ms = seconds * 1000
    return f"{ms:,.0f} ms" if ms >= _WHOLE_MS else f"{ms:.3g} ms"
