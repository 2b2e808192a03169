"""The one Ray Serve deployment: a bundle, its engine and its loop, behind two doors.

The *direct* door is the ASGI app at the application's route prefix; the *routed* door is
the set of methods that a router calls over a deployment handle. Both lead to the same loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import psutil
from pydantic import BaseModel, ByteSize, ConfigDict, Field
from ray import serve
from ray.serve import Application, Deployment
from ray.util import get_node_ip_address

from headpond.autoscaling import load_of
from headpond.backend import LocalBackend
from headpond.bundle.loading import load_engine
from headpond.bundle.store import open_bundle
from headpond.config_file import located
from headpond.door import Door
from headpond.engine import EngineSettings
from headpond.errors import HeadpondError, NotReady
from headpond.hop import Answered, ReplicaStatus
from headpond.http.app import build_app
from headpond.lane import LaneAddress
from headpond.planner import plan_memory
from headpond.record import Continuous
from headpond.registry import workload
from headpond.scheduling.loop import loop_for, slots_of
from headpond.scheduling.write_through import WriteThrough
from headpond.serve_edge import behind_serve
from headpond.serve_handle import MODEL_DEPLOYMENT
from headpond.settings import Settings
from headpond.sink import SinkSettings
from headpond.telemetry.logs import CallLog, configure_logging
from headpond.telemetry.metrics import Metrics
from headpond.telemetry.report import CallReport
from headpond.telemetry.tracing import call_tracer, request_tracer
from headpond.usage.ledger import Ledger

if TYPE_CHECKING:
    from headpond.call import Call
    from headpond.http.app import ASGIApp
    from headpond.usage.recorder import Recorder

SWITCH_S = 0.5e-3
"""After so long a thread lets others run Python: the event loop must not wait for an engine's.

By default it is 5 ms, more than a small request takes in all.
"""

MAX_ONGOING = 100_000
"""Admission is the loop's, in work units; Serve's own count must never bind first."""

LAST_WORDS_S = 0.5
"""For the answers of a process that ends itself to get out."""

HEALTH_PERIOD_S, HEALTH_TIMEOUT_S = 2, 3
"""How often Serve asks a process how it is, and what it has time for to answer.

Serve kills it after three failures in a row: one that stands still, some 10 s later.
"""


class ModelArgs(BaseModel):
    """The `args` of a model's application in a Serve config.

    Attributes:
        bundle: The bundle's folder; relative to `$HEADPOND_HOME` or the working directory.
        alias: The name callers use on the direct path.
        settings: Keys, tenants and telemetry: inline, or the path of a YAML file.
        state_bytes: Memory for what requests retain, e.g. `512MiB`.
        max_slots: The most requests that share a step, 16 unless said; or a batch, where one
            is formed, unbounded unless said.
        max_wait_s: Requests whose work would begin later than this are refused at once, but
            for batch work; the workload's own bound when that is tighter, or this is absent.
        device: `cpu`, `cuda` or `cuda:<index>`; `cuda` reserves one GPU for each replica.
        threads: Compute threads of the engine, and CPUs reserved for each replica.
        tensor_parallel: How many devices of one machine share the model; each replica
            reserves as many GPUs, and so many times `threads` CPUs.
        stuck_after_s: A step that runs longer makes the replica unhealthy.
        drain_s: How long a replica that is stopped may finish what it runs.
        sink: The vector store that callers may have their vectors written to.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    bundle: str
    alias: str
    settings: Settings | str = Settings()
    state_bytes: ByteSize = ByteSize(256 * 2**20)
    max_slots: int | None = Field(default=None, ge=1)
    max_wait_s: float | None = Field(default=None, gt=0)
    device: str = "cpu"
    threads: int = Field(default=1, ge=1)
    tensor_parallel: int = Field(default=1, ge=1, le=64)
    stuck_after_s: float = Field(default=60.0, gt=0)
    drain_s: float = Field(default=30.0, ge=0)
    sink: SinkSettings | None = None

    def engine_settings(self) -> EngineSettings:
        """Return the part an engine needs to know."""
        return EngineSettings(
            state_bytes=self.state_bytes,
            max_slots=slots_of(self.max_slots),
            device=self.device,
            threads=self.threads,
            tensor_parallel=self.tensor_parallel,
        )


def resolved(settings: Settings | str) -> Settings:
    """Return settings given inline, or load them from the file they name."""
    return Settings.load(located(settings)) if isinstance(settings, str) else settings


class Model:
    """One replica of one bundle."""

    async def __init__(self, args: ModelArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        """Load and check everything; Serve sends nothing before this returns.

        Raises:
            BundleError: A size, hash, format or fixture differs, or it does not fit.
        """
        sys.setswitchinterval(SWITCH_S)
        self._settings = resolved(args.settings)
        configure_logging(self._settings, sys.__stderr__)
        self._backend, ledger = await asyncio.to_thread(_load, args, self._settings)
        self._recorder = await _recording(self._settings, ledger)
        self._backend.loop.start()
        self._door = await Door.open(
            self._backend,
            get_node_ip_address(),  # type: ignore[no-untyped-call]
        )
        self._replica_id = serve.get_replica_context().replica_id.unique_id
        continuous = isinstance(self._backend.record.batching, Continuous)
        self._max_slots = slots_of(args.max_slots) if continuous else None

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the direct door."""
        tracer = request_tracer(self._settings)
        app = build_app([self._backend.record], self._backend, self._settings, tracer=tracer)
        return behind_serve(app)

    async def answer(self, call: Call, number: int) -> Answered | HeadpondError:
        """Run a routed call to its end; see `Door`."""
        return await self._door.answer(call, number)

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> LaneAddress | HeadpondError | None:
        """Run a routed stream to its end; see `Door`."""
        return await self._door.stream(call, router_id, stream)

    async def status(self) -> ReplicaStatus:
        """Return how this replica is."""
        return self._door.status

    async def exposition(self) -> tuple[str, str]:
        """Return the replica's ID and its metrics in the Prometheus text format."""
        return self._replica_id, await self._backend.metrics()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Tell Serve's autoscaler how much there is to do; see `headpond.autoscaling`."""
        return load_of(self._backend.loop.snapshot(), self._max_slots)

    async def check_health(self) -> None:
        """End this process when its engine stands still or is lost, once its callers are told.

        Nothing else ends a thread that never returns, and Serve starts a successor at once:
        that it is not well Serve would believe only the third time.

        Raises:
            NotReady: A step has run longer than `stuck_after_s`, or the engine has lost a
                process that it computes with.
        """
        if self._backend.loop.give_up():
            asyncio.get_running_loop().call_later(LAST_WORDS_S, os._exit, 1)
            raise NotReady(self._backend.reason)

    async def __del__(self) -> None:
        """End what is left when Serve's own draining is over."""
        if hasattr(self, "_door"):
            await self._backend.loop.stop(0.0)
            if self._recorder is not None:
                await self._recorder.stop()
            await self._door.close()


def _load(args: ModelArgs, settings: Settings) -> tuple[LocalBackend, Ledger]:
    bundle = open_bundle(located(args.bundle))
    manifest = bundle.manifest
    record = workload(manifest.workload)
    if args.device == "cpu":
        plan_memory(
            record,
            manifest,
            state_bytes=args.state_bytes,
            available_bytes=psutil.virtual_memory().available,
        )
    engine = load_engine(record, bundle, args.engine_settings())
    metrics = Metrics(record, bundle=manifest.ref, model=args.alias)
    observers = [metrics.observe, CallLog(manifest.ref).observe]
    if (tracer := call_tracer(settings, record, manifest.ref)) is not None:
        observers.append(tracer.observe)
    ledger = Ledger(manifest.ref)
    if settings.usage is not None:
        observers.append(ledger.observe)
    loop = loop_for(
        record,
        engine,
        record.bind(manifest.model, manifest.execution.dtype),
        state_bytes=args.state_bytes,
        max_slots=args.max_slots,
        max_wait_s=args.max_wait_s,
        bundle=manifest.ref,
        observer=partial(_observe, tuple(observers)),
        stuck_after_s=args.stuck_after_s,
        tenant_weights=settings.tenant_weights,
        limits=manifest.limits,
        planners=args.threads,
        writes=None if args.sink is None else WriteThrough.open(args.sink, record),
    )
    metrics.watch(loop.snapshot, engine.tallies)
    backend = LocalBackend(
        record=record, manifest=manifest, alias=args.alias, loop=loop, metrics_source=metrics
    )
    return backend, ledger


async def _recording(settings: Settings, ledger: Ledger) -> Recorder | None:
    """Begin to write a ledger down, where usage is kept."""
    if settings.usage is None:
        return None
    # It imports SQLAlchemy: memory that replicas which keep no usage are spared.
    from headpond.usage.recorder import Recorder  # noqa: PLC0415

    recorder = Recorder(settings.usage, ledger)
    await recorder.start()
    return recorder


def _observe(observers: Sequence[Callable[[CallReport], None]], report: CallReport) -> None:
    for observe in observers:
        observe(report)


def build(args: Mapping[str, object] | ModelArgs) -> Application:
    """Build a model's application: `import_path: headpond.deployment:build`.

    Raises:
        pydantic.ValidationError: Names the argument at fault.
    """
    # Serve hands over plain mappings: it reads annotations that are not strings only.
    parsed = ModelArgs.model_validate(args)
    deployment: Deployment = serve.deployment(
        name=MODEL_DEPLOYMENT,
        max_ongoing_requests=MAX_ONGOING,
        health_check_period_s=HEALTH_PERIOD_S,
        health_check_timeout_s=HEALTH_TIMEOUT_S,
        graceful_shutdown_timeout_s=parsed.drain_s,
        ray_actor_options={
            "num_cpus": parsed.threads * parsed.tensor_parallel,
            "num_gpus": 0 if parsed.device == "cpu" else parsed.tensor_parallel,
        },
    )(serve.ingress()(Model))
    return deployment.bind(parsed)
