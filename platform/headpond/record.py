"""The workload record: one declaration from which the platform derives the rest.

A record is executable. Its `cost` is called, its state terms are bound to a bundle, its
phases name the histograms. Declaring something inconsistent fails when the record's module
is imported, with one message that lists everything to fix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headpond.bundle.contract import Contract
from headpond.dialect import Route
from headpond.errors import BundleError, DeclarationError, HeadpondError
from headpond.state import COMPUTE_DTYPE, DTYPE_BYTES, StateModel, StateTerm
from headpond.units import Work, WorkUnit

Shape = Mapping[str, int]
"""A request's dimensions by name, e.g. `{"prompt_tokens": 20, "max_output_tokens": 64}`."""


@dataclass(frozen=True, kw_only=True)
class Dim:
    """One dimension of a request that drives its cost.

    Attributes:
        name: Plural snake_case name with its unit, e.g. `prompt_tokens`.
        summary: What it counts.
        limit: The most a request may have: a number, or the bundle symbol that says it.
        param: The request field to name when the limit is passed.
    """

    name: str
    summary: str
    limit: int | str | None = None
    param: str | None = None


@dataclass(frozen=True, kw_only=True)
class RequestShape:
    """The dimensions of one item of a request, and the hard limits around them.

    Attributes:
        dims: Every dimension that `cost` and the state terms may read.
        max_items: The most items one call may carry (n choices, a list of prompts).
        max_body_bytes: The largest HTTP body read before the request is refused (413).
    """

    dims: tuple[Dim, ...]
    max_items: int = 1
    max_body_bytes: int = 4 * 2**20


@dataclass(frozen=True, kw_only=True)
class Continuous:
    """Requests join and leave between steps, and share each step with others.

    Attributes:
        axis: What a request holds more of with each step, e.g. `tokens`.
        extent: Dimensions whose sum is the most it ever holds along the axis.
        first_phase: The dimension that is worked off in chunks before the first output.
        compatible_by: Names of what must be equal to share a step, in the order of `Plan.key`.
        granule: The axis is held in multiples of this: a number or a bundle symbol.
        step_budget: Units along the axis that one step may work off, over all its slots.
    """

    axis: str
    extent: tuple[str, ...]
    first_phase: str | None = None
    compatible_by: tuple[str, ...] = ()
    granule: int | str = 1
    step_budget: int = 512


@dataclass(frozen=True, kw_only=True)
class Formed:
    """Requests finish in one forward over a batch that is formed first.

    Attributes:
        axis: What the batch is made of, e.g. `padded_tokens`.
        bucket_by: Dimensions by which alike requests are brought together.
        budget: Units along the axis in one batch.
        window_ms: The longest an open batch waits for more while the engine is busy.
    """

    axis: str
    bucket_by: tuple[str, ...]
    budget: int
    window_ms: float = 0.0


class PhaseKind(StrEnum):
    """Who works, or waits, during a phase."""

    HOST = "host"
    QUEUE = "queue"
    DEVICE = "device"
    DELIVERY = "delivery"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One ordered part of a request's latency."""

    name: str
    kind: PhaseKind
    summary: str = ""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Latency within which delivered work counts as goodput; absent means unbounded.

    Attributes:
        first_output_s: From arrival to the first output.
        gap_s: Between two outputs (the mean over the request).
        total_s: From arrival to the end.
    """

    first_output_s: float | None = None
    gap_s: float | None = None
    total_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ThroughputUnit:
    """A rate in which the workload is judged, and when its work counts.

    Attributes:
        unit: The work unit that is counted per second.
        bounds: The latency bounds a request must keep for its work to count.
        quality: What must be unchanged for a rate to be a result.
    """

    unit: str
    bounds: Bounds
    quality: str


class Limiter(StrEnum):
    """The resource that limits a workload on its devices."""

    MEMORY_BANDWIDTH = "memory_bandwidth"
    COMPUTE = "compute"
    CODEC = "codec"


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Where the workload runs, and what it holds before any request comes.

    Attributes:
        devices: Device kinds with an engine, e.g. `("cpu", "cuda")`.
        dtypes: Dtypes an engine can compute in.
        limited_by: The resource that binds first.
        static_bytes: Bundle symbols whose sum is resident whatever the load.
    """

    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    limited_by: Limiter
    static_bytes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A characteristic way in which the workload fails, and the error it must become."""

    name: str
    summary: str
    error: type[HeadpondError]


@dataclass(frozen=True, kw_only=True)
class Overload:
    """What happens when more arrives than can be done.

    Attributes:
        queue_limit: The most work that waits; past it new calls are refused (503).
        deadline_s: How long a request may take when its caller does not say.
        failures: One entry, and one fault test, per characteristic failure.
    """

    queue_limit: Work
    deadline_s: float
    failures: tuple[Failure, ...] = ()


MEASURES = frozenset(
    {"running", "waiting", "state_used_ratio", "first_output_s", "gap_s", "total_s", "queue_s"}
    | {"finished", "refused", "preemptions"}
)
"""What the platform measures of every workload; `phase_s:<phase>` and `work:<unit>` too."""


@dataclass(frozen=True, kw_only=True)
class MetricAlias:
    """A second name for one of the platform's measures, so that kept dashboards work.

    Attributes:
        name: The metric's name as others know it, e.g. `vllm:num_requests_running`.
        measure: One of `MEASURES`, `phase_s:<phase>` or `work:<unit>`.
    """

    name: str
    measure: str


@dataclass(frozen=True, kw_only=True)
class WorkloadRecord:
    """Everything by which one workload differs from another.

    Attributes:
        name: The workload's one word.
        summary: One line for the routes index and the docs.
        routes: HTTP routes, each with its dialect and wire types.
        request: Dimensions and hard limits of a request.
        units: The work units that `cost` produces.
        cost: Work of one item from its shape.
        symbols: Integers that every bundle of the workload binds.
        state: What a request holds while it is served.
        batching: Which loop drives the engine, and along which axis.
        throughput: Rates, with the bounds under which they count.
        phases: Ordered latency phases: host phases, one queue, device phases, delivery.
        fit: Devices, dtypes and static memory.
        overload: Queue bound, default deadline, failures.
        contracts: What a bundle's fixtures check, in the order they are compared.
        engine: `module:function` that loads the engine; imported by replicas only.
        metric_aliases: Names under which dashboards of the field know our measures.
    """

    name: str
    summary: str
    routes: tuple[Route, ...]
    request: RequestShape
    units: tuple[WorkUnit, ...]
    cost: Callable[[Shape], Work]
    symbols: tuple[str, ...]
    state: tuple[StateTerm, ...]
    batching: Continuous | Formed
    throughput: tuple[ThroughputUnit, ...]
    phases: tuple[Phase, ...]
    fit: Fit
    overload: Overload
    contracts: tuple[Contract, ...]
    engine: str
    metric_aliases: tuple[MetricAlias, ...] = ()

    def __post_init__(self) -> None:
        """Check the declaration against itself.

        Raises:
            DeclarationError: With every problem found, and what to do about each.
        """
        problems = [*_name_problems(self), *_work_problems(self), *_axis_problems(self)]
        problems += [*_state_problems(self), *_phase_problems(self), *_fit_problems(self)]
        problems += _alias_problems(self)
        if problems:
            listed = "\n".join(f"  - {problem}" for problem in problems)
            raise DeclarationError(f"workload {self.name!r} contradicts itself:\n{listed}")

    @property
    def units_by_name(self) -> Mapping[str, WorkUnit]:
        """The work units by name."""
        return {unit.name: unit for unit in self.units}

    def bind(self, symbols: Mapping[str, int], dtype: str) -> StateModel:
        """Bind the state terms to a bundle.

        Args:
            symbols: The integers of the bundle's model section.
            dtype: The bundle's compute dtype.

        Raises:
            BundleError: A symbol is missing, or the dtype is none the workload can use.
        """
        missing = sorted(set(self.symbols) - set(symbols))
        if missing:
            raise BundleError(
                f"{self.name} needs {', '.join(missing)} in the bundle's model section",
                param=f"model.{missing[0]}",
            )
        if dtype not in self.fit.dtypes:
            allowed = ", ".join(self.fit.dtypes)
            raise BundleError(
                f"{self.name} computes in {allowed}, not in {dtype!r}", param="execution.dtype"
            )
        granule = self.batching.granule if isinstance(self.batching, Continuous) else 1
        return StateModel(
            terms=self.state,
            symbols=dict(symbols),
            dtype=dtype,
            axis=self.batching.axis,
            granule=granule if isinstance(granule, int) else symbols[granule],
        )


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
    ):
        for name in _repeated(names):
            yield f"{what} {name!r} is declared twice; keep one"
    if ":" not in record.engine:
        yield f"engine {record.engine!r} must read 'module:function'"


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
    if isinstance(batching, Formed):
        named = {"bucket_by": batching.bucket_by}
    else:
        first = (batching.first_phase,) if batching.first_phase else ()
        named = {"extent": batching.extent, "first_phase": first}
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


def _alias_problems(record: WorkloadRecord) -> Iterable[str]:
    measures = MEASURES | {f"phase_s:{phase.name}" for phase in record.phases}
    measures |= {f"work:{unit.name}" for unit in record.units}
    for alias in record.metric_aliases:
        if alias.measure not in measures:
            yield f"metric alias {alias.name!r} stands for {alias.measure!r}, which is no measure"
