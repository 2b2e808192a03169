"""The workload record: one declaration from which the platform derives the rest.

A record is executable. Its `cost` is called, its state terms are bound to a bundle, its
phases name the histograms. Declaring something inconsistent fails when the record's module
is imported, with one message that lists everything to fix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headpond.batching import Continuous, Feed, Formed
from headpond.bundle.contract import Contract
from headpond.bundle.manifest import Execution
from headpond.consistency import inconsistencies
from headpond.dialect import Route, Unserved
from headpond.effort import Efforts
from headpond.engine import Json
from headpond.errors import BundleError, DeclarationError, HeadpondError
from headpond.phases import Phase, PhaseKind
from headpond.state import StateModel, StateTerm
from headpond.units import Work, WorkUnit

__all__ = [
    "Bounds",
    "Continuous",
    "Dim",
    "Failure",
    "Feed",
    "Fit",
    "Formed",
    "GenAi",
    "Limiter",
    "MetricAlias",
    "Overload",
    "Phase",
    "PhaseKind",
    "RequestShape",
    "Shape",
    "Tally",
    "ThroughputUnit",
    "WorkloadRecord",
]

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
        call_limit: The most that the items of one call may have together.
    """

    name: str
    summary: str
    limit: int | str | None = None
    param: str | None = None
    call_limit: int | None = None


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
        process_bytes: What a replica's process takes besides, measured: Python, Ray and the
            libraries of the engine that computes a bundle. None while nobody has measured it.
        efficiency: The share of the floor's speed that engines reach, measured; plans go by it.
        tensor_parallel: Whether several devices can share one model.
    """

    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    limited_by: Limiter
    static_bytes: tuple[str, ...]
    process_bytes: Callable[[Execution], int] | None = None
    efficiency: float = 0.5
    tensor_parallel: bool = False


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
        wait_s: A call is refused (503) when its work would probably begin later than this,
            unless it is of the batch class; None refuses only what would wait until its
            deadline. A deployment may say less.
        exact: Whether items come to just the work they are admitted with, so that what surely
            takes longer than its deadline is refused (408) before it begins; of the continuous
            loop.
        failures: One entry, and one fault test, per characteristic failure.
    """

    queue_limit: Work
    deadline_s: float
    wait_s: float | None = None
    exact: bool = False
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Something a workload's engine counts; shown as the metric `headpond_<name>_total`.

    Attributes:
        name: Plural snake_case name, e.g. `draft_tokens`.
        summary: What is counted.
    """

    name: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class MetricAlias:
    """A second name for one of the platform's measures, so that kept dashboards work.

    Attributes:
        name: The metric's name as others know it, e.g. `vllm:num_requests_running`.
        measure: One of `headpond.consistency.MEASURES`, `phase_s:<phase>`, `work:<unit>` or
            `tally:<name>`.
        labels: Its labels, by name; `{workload}`, `{model}` and `{bundle}` are filled in.
    """

    name: str
    measure: str
    labels: Mapping[str, str] = field(default_factory=lambda: {"model_name": "{model}"})


@dataclass(frozen=True, kw_only=True)
class GenAi:
    """What OpenTelemetry's conventions for generative AI call the workload's spans.

    Attributes:
        operation: `gen_ai.operation.name`, e.g. `chat`; the workload's own name when absent.
        usage: The attribute that holds the amount of a work unit, by unit, e.g.
            `{"input_tokens": "gen_ai.usage.input_tokens"}`; other units have none.
    """

    operation: str | None = None
    usage: Mapping[str, str] = field(default_factory=dict)


Compared = Callable[[Sequence[object]], Json]
"""Makes of the outputs of one item, in order, what two versions of a model agree on."""


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
        efforts: What the device phases of an item take at least; None where nobody says.
        tallies: What its engine counts besides, for the metrics.
        metric_aliases: Names under which dashboards of the field know our measures.
        gen_ai: What its spans are called by those who trace generative AI.
        exporter: `module:function` that writes a bundle as ONNX; imported to export only. See
            `headpond.bundle.exporting.Exporter`.
        vector: Makes a vector of an output, where outputs can go to a vector store.
        compared: Makes of an item's outputs what two versions of a model are compared by, where
            answers can be compared at all.
        unserved: Addresses that clients of its dialects may ask for, and no route answers.
        panel: A package whose folder holds `panel.js`, the workload's part of the playground.
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
    efforts: Efforts | None = None
    tallies: tuple[Tally, ...] = ()
    metric_aliases: tuple[MetricAlias, ...] = ()
    gen_ai: GenAi = GenAi()
    exporter: str | None = None
    vector: Callable[[object], Sequence[float]] | None = None
    compared: Compared | None = None
    unserved: tuple[Unserved, ...] = ()
    panel: str | None = None

    def __post_init__(self) -> None:
        """Check the declaration against itself.

        Raises:
            DeclarationError: With every problem found, and what to do about each.
        """
        problems = inconsistencies(self)
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
