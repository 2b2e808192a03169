"""Declaring a workload for one process tree, without installing a package."""

from __future__ import annotations

from pathlib import Path


def declare_workload(folder: Path, name: str, target: str) -> Path:
    """Write the metadata of a package that declares a workload, and return its folder.

    With the folder on `PYTHONPATH`, processes find the workload as if it were installed.

    Args:
        folder: Where the metadata goes; made when it is missing.
        name: The workload's name.
        target: Its record as `module:attribute`, e.g. `headpond.testing.echo:record`.
    """
    info = folder / f"headpond_declared_{name}-0.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: headpond-declared-{name}\nVersion: 0.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        f"[headpond.workloads]\n{name} = {target}\n", encoding="utf-8"
    )
    return folder
