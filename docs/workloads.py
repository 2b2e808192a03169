"""Writes `docs/reference/workloads.md` from the records of the workloads that are installed.

python docs/workloads.py           writes it
python docs/workloads.py --check   fails when it is not what would be written
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from diagram import Shape, chain, fan
from generated import keep

from headpond.record import Bounds, Continuous, PhaseKind, WorkloadRecord
from headpond.registry import workloads

PAGE = Path(__file__).parent / "reference/workloads.md"
IMAGES = Path(__file__).parent / "images"
SHAPES = {
    PhaseKind.HOST: Shape.HOST,
    PhaseKind.QUEUE: Shape.QUEUE,
    PhaseKind.DEVICE: Shape.DEVICE,
    PhaseKind.DELIVERY: Shape.DELIVERY,
}
TITLE = """# The workloads, as their records declare them

Drawn by `docs/workloads.py` from the records themselves; [what their parts mean](../concepts.md)
comes first. Each call visits its phases in this order, and the times of the phases sum to its
total: grey boxes are the host's, blue ones the device's, the yellow one is the wait for it, and the
green one is the answer on its way.
"""
LOOPS = """
The platform has two loops. In the **continuous** one requests join and leave a running batch
between two steps; in the **formed** one a batch is made of what waits, computed once, and gone.
"""


def rendered() -> str:
    """Return the page."""
    records = tuple(workloads().values())
    lines = [TITLE, f"![{_told_loops(records)}](../images/loops.svg)", LOOPS]
    for record in records:
        lines += _one(record)
    return "\n".join(lines).rstrip() + "\n"


def pictures() -> Iterator[tuple[Path, str]]:
    """Yield the page's diagrams, and where they lie."""
    records = tuple(workloads().values())
    loops = {record.name: f"{_loop(record)} loop" for record in records}
    yield IMAGES / "loops.svg", fan(_told_loops(records), "router", loops)
    for record in records:
        boxes = [(phase.name, SHAPES[phase.kind]) for phase in record.phases]
        yield IMAGES / f"phases-{record.name}.svg", chain(_told_phases(record), boxes)


def _loop(record: WorkloadRecord) -> str:
    return type(record.batching).__name__.lower()


def _told_loops(records: tuple[WorkloadRecord, ...]) -> str:
    each = (f"{record.name} to the {_loop(record)} loop" for record in records)
    return f"The router leads {', '.join(each)}"


def _told_phases(record: WorkloadRecord) -> str:
    return f"Phases: {', then '.join(phase.name for phase in record.phases)}"


def _one(record: WorkloadRecord) -> Iterator[str]:
    yield from [f"## {record.name.capitalize()}", "", record.summary, ""]
    yield from [f"![{_told_phases(record)}](../images/phases-{record.name}.svg)", ""]
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
    for path, drawing in pictures():
        keep(path, drawing)
