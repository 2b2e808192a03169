"""Writes `docs/reference/workloads.md` from the records of the workloads that are installed.

python docs/workloads.py           writes it
python docs/workloads.py --check   fails when it is not what would be written
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from generated import keep

from headpond.record import Bounds, Continuous, Phase, PhaseKind, WorkloadRecord
from headpond.registry import workloads

PAGE = Path(__file__).parent / "reference/workloads.md"
TITLE = """# The workloads, as their records declare them

Drawn by `docs/workloads.py` from the records themselves; [what their parts mean](../concepts.md)
comes first. Each call visits its phases in this order, and the times of the phases sum to its
total: boxes are the host's, rounded ones the device's.
"""
LOOPS = """
The platform has two loops. In the **continuous** one requests join and leave a running batch
between two steps; in the **formed** one a batch is made of what waits, computed once, and gone.
"""


def rendered() -> str:
    """Return the page."""
    records = tuple(workloads().values())
    lines = [TITLE, "```mermaid", "flowchart LR", *_loops(records), "```", LOOPS]
    for record in records:
        lines += _one(record)
    return "\n".join(lines).rstrip() + "\n"


def _loops(records: tuple[WorkloadRecord, ...]) -> Iterator[str]:
    yield "  router[router]"
    for record in records:
        kind = type(record.batching).__name__.lower()
        yield f"  router --> {record.name} -- {record.batching.axis} --> {kind}([{kind} loop])"


def _one(record: WorkloadRecord) -> Iterator[str]:
    yield from [f"## {record.name.capitalize()}", "", record.summary, ""]
    yield from ["```mermaid", "flowchart LR", *_phases(record.phases), "```", ""]
    yield from ["| | |", "|---|---|"]
    yield f"| batching | {_batching(record)} |"
    for unit in record.units:
        yield f"| unit of work | `{unit.name}`: {unit.summary} |"
    for term in record.state:
        shape = " x ".join(str(factor) for factor in term.shape)
        yield f"| state, {term.lifetime.value} | `{term.name}`: {shape}, {term.dtype} |"
    for rate in record.throughput:
        yield f"| goodput | `{rate.unit}` a second, {_bounds(rate.bounds)} |"
    yield f"| overload | at most {_amounts(record)} wait; a call takes at most {record.overload.deadline_s:g} s |"
    yield f"| devices | {', '.join(record.fit.devices)}; {', '.join(record.fit.dtypes)} |"
    yield f"| fixtures compare | {', '.join(each.name for each in record.contracts)} |"
    yield f"| routes | {', '.join(dict.fromkeys(f'`{route.path}`' for route in record.routes))} |"
    yield ""


def _phases(phases: tuple[Phase, ...]) -> Iterator[str]:
    shown = {
        PhaseKind.HOST: '{0}["{0}"]',
        PhaseKind.QUEUE: '{0}[("{0}")]',
        PhaseKind.DEVICE: '{0}(["{0}"])',
        PhaseKind.DELIVERY: '{0}>"{0}"]',
    }
    yield "  " + " --> ".join(shown[phase.kind].format(phase.name) for phase in phases)


def _batching(record: WorkloadRecord) -> str:
    how = record.batching
    if isinstance(how, Continuous):
        most = f"continuous along `{how.axis}`, at most {how.step_budget} in a step"
        alike = how.compatible_by
    else:
        most = f"formed along `{how.axis}`, at most {how.budget} in a batch"
        alike = how.bucket_by
    return most + (f", alike in {', '.join(f'`{name}`' for name in alike)}" if alike else "")


def _bounds(bounds: Bounds) -> str:
    kept = {
        "first output within": bounds.first_output_s,
        "gaps of": bounds.gap_s,
        "all within": bounds.total_s,
    }
    return ", ".join(f"{what} {most_s:g} s" for what, most_s in kept.items() if most_s is not None)


def _amounts(record: WorkloadRecord) -> str:
    return ", ".join(f"{most:,} {unit}" for unit, most in record.overload.queue_limit.items())


if __name__ == "__main__":
    keep(PAGE, rendered())
