"""What makes a workload record contradict itself, and what to do about it.

The checks run when a record is declared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from headpond.batching import Continuous
from headpond.phases import PhaseKind
from headpond.state import COMPUTE_DTYPE, DTYPE_BYTES

if TYPE_CHECKING:
    from headpond.record import WorkloadRecord

MEASURES = frozenset(
    {"running", "waiting", "state_used_ratio", "first_output_s", "gap_s", "total_s", "queue_s"}
    | {"finished", "refused", "preemptions"}
)
"""What the platform measures of every workload.

So are `phase_s:<phase>`, `work:<unit>` and `tally:<name>`.
"""

ALIAS_VALUES = frozenset({"workload", "model", "bundle"})
"""What the labels of a metric alias may be made of."""

OWN_COUNTERS = frozenset(
    {"work", "goodput", "received", "finished", "refused", "preemptions"}
    | {"http_responses", "http_received", "http_finished", "http_refused"}
)
"""Counters that every workload has, as `headpond_<name>_total`; no tally may be named so."""


def inconsistencies(record: WorkloadRecord) -> list[str]:
    """Return everything that contradicts something else in the declaration."""
    checks = (
        _name_problems,
        _work_problems,
        _axis_problems,
        _state_problems,
        _phase_problems,
        _fit_problems,
        _overload_problems,
        _tally_problems,
        _alias_problems,
    )
    return list(chain.from_iterable(check(record) for check in checks))


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _name_problems(record: WorkloadRecord) -> Iterable[str]:
    if not record.name.isidentifier() or record.name != record.name.lower():
        yield f"name {record.name!r} must be one lower-case identifier"
    for what, names in (
        ("phase", [phase.name for phase in record.phases]),
        ("unit", [unit.name for unit in record.units]),
        ("dimension", [dim.name for dim in record.request.dims]),
        ("state term", [term.name for term in record.state]),
        ("contract", [contract.name for contract in record.contracts]),
        ("route", [f"{route.method} {route.path}" for route in record.routes]),
        ("tally", [tally.name for tally in record.tallies]),
    ):
        for name in _repeated(names):
            yield f"{what} {name!r} is declared twice; keep one"
    for role, named in (("engine", record.engine), ("exporter", record.exporter)):
        if named is not None and ":" not in named:
            yield f"{role} {named!r} must read 'module:function'"


def _work_problems(record: WorkloadRecord) -> Iterable[str]:
    """Run `cost` on a sample and compare what it produces with what is declared."""
    sample = {dim.name: 3 for dim in record.request.dims}
    try:
        produced = record.cost(sample)
    except KeyError as missing:
        yield f"cost reads dimension {missing}, which request.dims does not declare"
        return
    declared = {unit.name for unit in record.units}
    for unit in sorted(set(produced) - declared):
        yield f"cost produces {unit!r}, which units does not declare"
    for unit in sorted(declared - set(produced)):
        yield f"unit {unit!r} is produced by nobody; let cost return it or drop it"
    for rate in record.throughput:
        if rate.unit not in declared:
            yield f"throughput counts {rate.unit!r}, which units does not declare"
    for unit in record.overload.queue_limit:
        if unit not in declared:
            yield f"overload.queue_limit counts {unit!r}, which units does not declare"
    if not record.overload.queue_limit:
        yield "overload.queue_limit is empty; bound the queue in at least one unit"


def _axis_problems(record: WorkloadRecord) -> Iterable[str]:
    dims = {dim.name for dim in record.request.dims}
    batching = record.batching
    if not isinstance(batching, Continuous):
        named: Mapping[str, tuple[str, ...]] = {"axis": (batching.axis,)}
        if batching.budget < 1:
            yield f"batching.budget is {batching.budget}; it must be at least 1"
    else:
        first = (batching.first_phase,) if batching.first_phase else ()
        cached = (batching.cached,) if batching.cached else ()
        named = {"extent": batching.extent, "first_phase": first, "cached": cached}
        if cached and not first:
            yield "batching.cached is part of a first phase; name that in batching.first_phase"
        if batching.stretch <= 1.0:
            yield f"batching.stretch is {batching.stretch:g}; it must be above 1"
        if batching.feed is not None and (batching.feed.rate_per_s <= 0 or batching.feed.ahead < 1):
            yield "batching.feed must have a rate above 0, and let at least 1 unit wait"
        if isinstance(batching.granule, str) and batching.granule not in record.symbols:
            yield f"batching.granule names symbol {batching.granule!r}, which symbols does not list"
    for field, names in named.items():
        for name in names:
            if name not in dims:
                yield f"batching.{field} names dimension {name!r}, which request.dims lacks"


def _state_problems(record: WorkloadRecord) -> Iterable[str]:
    dims = {dim.name for dim in record.request.dims}
    known = dims | set(record.symbols) | {record.batching.axis}
    for term in record.state:
        for symbol in sorted(term.symbols - known):
            yield (
                f"state {term.name!r} uses symbol {symbol!r}, which no bundle can bind; "
                "add it to symbols or to request.dims"
            )
        if term.dtype != COMPUTE_DTYPE and term.dtype not in DTYPE_BYTES:
            yield f"state {term.name!r} has dtype {term.dtype!r}, whose width is not known"
    for dim in record.request.dims:
        if isinstance(dim.limit, str) and dim.limit not in record.symbols:
            yield f"dimension {dim.name!r} is limited by {dim.limit!r}, which symbols does not list"


def _phase_problems(record: WorkloadRecord) -> Iterable[str]:
    kinds = [phase.kind for phase in record.phases]
    if kinds.count(PhaseKind.QUEUE) != 1:
        yield f"phases must hold exactly one queue phase, not {kinds.count(PhaseKind.QUEUE)}"
    if PhaseKind.DEVICE not in kinds:
        yield "phases must hold at least one device phase"
    elif PhaseKind.QUEUE in kinds and kinds.index(PhaseKind.DEVICE) < kinds.index(PhaseKind.QUEUE):
        yield "the queue phase must come before the first device phase"
    if not kinds or kinds[0] is not PhaseKind.HOST:
        yield "the first phase must be a host phase (validation)"
    if kinds.count(PhaseKind.DELIVERY) != 1 or kinds[-1] is not PhaseKind.DELIVERY:
        yield "the last phase, and only the last, must be delivery"


def _fit_problems(record: WorkloadRecord) -> Iterable[str]:
    if not record.fit.devices:
        yield "fit.devices is empty; name at least one device"
    for dtype in record.fit.dtypes:
        if dtype not in DTYPE_BYTES:
            yield f"fit.dtypes names {dtype!r}, whose width is not known"
    for symbol in record.fit.static_bytes:
        if symbol not in record.symbols:
            yield f"fit.static_bytes names symbol {symbol!r}, which symbols does not list"


def _overload_problems(record: WorkloadRecord) -> Iterable[str]:
    wait_s = record.overload.wait_s
    if wait_s is not None and wait_s <= 0.0:
        yield f"overload.wait_s is {wait_s:g}; it must be above 0, or None"


def _tally_problems(record: WorkloadRecord) -> Iterable[str]:
    for tally in record.tallies:
        if not tally.name.isidentifier() or tally.name != tally.name.lower():
            yield f"tally {tally.name!r} must be one lower-case identifier"
        if tally.name in OWN_COUNTERS:
            yield f"tally {tally.name!r} is a counter of every workload; name it otherwise"


def _alias_problems(record: WorkloadRecord) -> Iterable[str]:
    measures = MEASURES | {f"phase_s:{phase.name}" for phase in record.phases}
    measures |= {f"work:{unit.name}" for unit in record.units}
    measures |= {f"tally:{tally.name}" for tally in record.tallies}
    for alias in record.metric_aliases:
        if alias.measure not in measures:
            yield f"metric alias {alias.name!r} stands for {alias.measure!r}, which is no measure"
        for name, text in alias.labels.items():
            try:
                text.format_map(dict.fromkeys(ALIAS_VALUES, ""))
            except (KeyError, ValueError, IndexError):
                known = ", ".join(f"{{{value}}}" for value in sorted(ALIAS_VALUES))
                yield f"label {name!r} of metric alias {alias.name!r} may hold {known} only"
    for unit in record.gen_ai.usage:
        if unit not in record.units_by_name:
            yield f"gen_ai.usage names {unit!r}, which units does not declare"
