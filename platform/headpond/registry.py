"""The workloads that are installed, found by their entry points."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from headpond.errors import DeclarationError
from headpond.record import WorkloadRecord

GROUP = "headpond.workloads"
"""An entry point in this group is named after the workload and points at its record."""


def workloads() -> Mapping[str, WorkloadRecord]:
    """Return the record of every installed workload, by name.

    Raises:
        DeclarationError: A distribution declares something that is not its record.
    """
    return {name: _load(entry) for name, entry in sorted(_declared().items())}


def workload(name: str) -> WorkloadRecord:
    """Return one installed workload's record; the others are not imported.

    Raises:
        DeclarationError: No distribution declares it, or the one that does is broken.
    """
    declared = _declared()
    if name not in declared:
        known = ", ".join(sorted(declared)) or "none"
        raise DeclarationError(f"no installed package declares a workload {name!r}; known: {known}")
    return _load(declared[name])


def _declared() -> dict[str, EntryPoint]:
    declared: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        other = declared.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise DeclarationError(
                f"workload {entry.name!r} is declared by both {_distribution(other)} and "
                f"{_distribution(entry)}; uninstall one"
            )
    return declared


def _load(entry: EntryPoint) -> WorkloadRecord:
    where = f"entry point {entry.name!r} = {entry.value!r} of {_distribution(entry)}"
    try:
        record = entry.load()
    except (ImportError, AttributeError, ValueError, DeclarationError) as error:
        raise DeclarationError(f"{where} cannot be loaded: {error}") from error
    if not isinstance(record, WorkloadRecord):
        raise DeclarationError(f"{where} is a {type(record).__name__}, not a WorkloadRecord")
    if record.name != entry.name:
        raise DeclarationError(f"{where} is the record of {record.name!r}; name them alike")
    return record


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown distribution"
