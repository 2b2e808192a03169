"""`headpond bundle`: write, lock, verify, export and show bundles.

Exit codes: 0 it is as it should be, 1 the bundle breaks its contract, 2 wrong usage.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from headpond.bundle.document import read_manifest
from headpond.bundle.exporting import Export, Quantization, export_bundle
from headpond.bundle.loading import bind
from headpond.bundle.locking import lock_engine, lock_files, write_draft, write_lock
from headpond.bundle.manifest import Manifest
from headpond.bundle.store import Store, default_cache, open_bundle
from headpond.bundle.verifying import Check, Verification
from headpond.cli.console import people, refusals, result_console
from headpond.cli.options import AsJson
from headpond.engine import EngineSettings
from headpond.planner import memory_plan
from headpond.registry import workload as find_record

app = typer.Typer(no_args_is_help=True, help="Write, lock, verify, export and show bundles.")

_FIXTURE_STATE_BYTES = 512 * 2**20
"""Room for the fixtures, which are short, and come one at a time."""

_TEMPLATE: dict[str, str] = {"summary": "Say what it is.", "licence": "NOASSERTION"}

Location = Annotated[
    Path, typer.Argument(help="The bundle's folder, or its bundle.yaml.", exists=True)
]
Device = Annotated[str, typer.Option(help="Where the engine computes: cpu or cuda[:index].")]
Threads = Annotated[int, typer.Option(help="Compute threads of the engine.", min=1)]
WithEngine = Annotated[bool, typer.Option("--engine/--no-engine", help="Load the engine.")]


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The bundle's name.")],
    workload: Annotated[str, typer.Option(help="The workload it is for.")],
    artifact: Annotated[list[str], typer.Option(help="NAME=SOURCE; once per file.")],
    architecture: Annotated[str, typer.Option(help="The model class.")] = "unspecified",
    dtype: Annotated[str | None, typer.Option(help="What the engine computes in.")] = None,
    into: Annotated[Path, typer.Option(help="Where the bundle's folder goes.")] = Path("bundles"),
) -> None:
    """Write the skeleton of a bundle; fill it in, add fixtures, then lock it."""
    files = [_named_source(text) for text in artifact]
    with refusals():
        record = find_record(workload)
        execution = {"architecture": architecture, "dtype": dtype or record.fit.dtypes[0]}
        head = {"name": name, "version": "0.1.0", "workload": workload, **_TEMPLATE}
        path = write_draft(into / name, {**head, "artifacts": files, "execution": execution})
    people.print(f"Wrote {path}. Next: add fixtures, then `headpond bundle lock {path.parent}`.")


@app.command()
def lock(
    location: Location, engine: WithEngine = True, device: Device = "cpu", threads: Threads = 1
) -> None:
    """Fill in sizes, hashes, the model's numbers and what the fixtures must give."""
    with refusals():
        bundle = lock_files(location, Store(default_cache()))
        manifest = bundle.manifest
        if engine:
            settings = _settings(device, threads)
            manifest = lock_engine(find_record(manifest.workload), bundle, settings)
        manifest = write_lock(location, manifest)
    if not manifest.fixtures:
        people.print("[yellow]It has no fixtures: no replica will serve it.[/yellow]")
    typer.echo(manifest.ref)


@app.command()
def verify(
    location: Location,
    engine: WithEngine = True,
    device: Device = "cpu",
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Check the manifest, every file and, on the loaded engine, every fixture."""
    checks: list[Check] = []

    def report(check: Check) -> None:
        checks.append(check)
        if not as_json:
            _show_check(check)

    settings = _settings(device, threads) if engine else None
    verification = Verification(Store(default_cache()), report)
    good = verification.verify(location, find_record, settings)
    if as_json:
        listed = [asdict(check) | {"ok": check.problem is None} for check in checks]
        typer.echo(json.dumps({"ok": good, "checks": listed}, ensure_ascii=False))
    raise typer.Exit(0 if good else 1)


@app.command()
def export(
    location: Location,
    target: Annotated[Path, typer.Argument(help="The new bundle's folder; not there yet.")],
    quantize: Annotated[Quantization | None, typer.Option(help="Compute in fewer bits.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Of every fixture; its own if not said.", min=0.0)
    ] = None,
    device: Device = "cpu",
    threads: Threads = 1,
) -> None:
    """Write a bundle as ONNX, if that does what the bundle's fixtures say."""
    with refusals():
        bundle = open_bundle(location)
        manifest = export_bundle(
            find_record(bundle.manifest.workload),
            bundle,
            target,
            Export(quantization=quantize, tolerance=tolerance),
            store=Store(default_cache()),
            settings=_settings(device, threads),
        )
    people.print(f"Wrote {escape(str(target))}: {len(manifest.fixtures)} fixtures came out.")
    typer.echo(manifest.ref)


@app.command()
def show(location: Location, as_json: AsJson = False) -> None:
    """Print a bundle: what it says, its digest, and the memory it takes."""
    with refusals():
        manifest = read_manifest(location)
        memory = _memory(manifest)
    if as_json:
        document = {
            "ref": manifest.ref,
            "digest": manifest.digest,
            "manifest": manifest.model_dump(mode="json"),
            "memory": memory,
        }
        typer.echo(json.dumps(document, ensure_ascii=False))
    else:
        _show_manifest(manifest, memory)


def _named_source(text: str) -> dict[str, str]:
    name, equals, source = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} must read NAME=SOURCE", param_hint="--artifact")
    return {"name": name, "source": source}


def _settings(device: str, threads: int) -> EngineSettings:
    return EngineSettings(
        state_bytes=_FIXTURE_STATE_BYTES, max_slots=1, device=device, threads=threads
    )


def _memory(manifest: Manifest) -> dict[str, int] | None:
    """Return bytes of the record's state model; None for a bundle that was never locked."""
    if not manifest.model:
        return None
    record = find_record(manifest.workload)
    state = bind(record, manifest)
    plan = memory_plan(record, manifest, 0)
    smallest = dict.fromkeys((dim.name for dim in record.request.dims), 1)
    granule = state.granule
    growth = state.request_bytes(smallest, 2 * granule) - state.request_bytes(smallest, granule)
    return {
        "static_bytes": plan.static_bytes,
        "largest_request_bytes": plan.largest_request_bytes,
        "granule": granule,
        "granule_bytes": growth,
    }


def _show_check(check: Check) -> None:
    console = result_console()
    if check.problem is None:
        console.print(f"[green]ok[/green]    {escape(check.name)}")
    else:
        console.print(f"[red]BROKEN[/red]  {escape(check.name)}: {escape(check.problem)}")


def _show_manifest(manifest: Manifest, memory: dict[str, int] | None) -> None:
    console = result_console()
    console.print(f"[bold]{manifest.ref}[/bold]  {escape(manifest.summary)}")
    console.print(f"digest    {manifest.digest}", soft_wrap=True)
    console.print(f"workload  {manifest.workload}, {manifest.execution.architecture} in "
                  f"{manifest.execution.dtype}, {escape(manifest.licence)}")  # fmt: skip
    files = Table("artifact", "source", "bytes", "sha256", box=None)
    for artifact in manifest.artifacts:
        size = f"{artifact.bytes:,}"
        files.add_row(artifact.name, escape(artifact.source), size, f"{artifact.sha256[:12]}…")
    console.print(files)
    for name, values in (("model", manifest.model), ("limits", manifest.limits)):
        listed = ", ".join(f"{symbol} {value:,}" for symbol, value in values.items())
        console.print(f"{name:9} {listed or 'nothing'}")
    console.print(f"fixtures  {', '.join(fixture.name for fixture in manifest.fixtures) or 'none'}")
    if memory is not None:
        grows = memory["granule_bytes"]
        axis = find_record(manifest.workload).batching.axis
        console.print(
            f"memory    {memory['static_bytes']:,} bytes static, at most "
            f"{memory['largest_request_bytes']:,} a request, "
            + (
                f"{grows:,} for each {memory['granule']} of {axis}"
                if grows
                else "however long it is"
            )
        )
