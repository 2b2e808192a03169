"""The router as a Ray Serve deployment: the same ASGI app over the routed backend."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application, Deployment

from headpond.deployment import (
    HEALTH_PERIOD_S,
    HEALTH_TIMEOUT_S,
    MAX_ONGOING,
    resolved,
)
from headpond.http.app import build_app
from headpond.http.jobs import JobsDoor
from headpond.http.routers import Routers
from headpond.http.stray import with_strays
from headpond.http.usage import UsageDoor
from headpond.jobs.access import JobsAccess
from headpond.jobs.settings import JobStore
from headpond.registry import workloads
from headpond.rollouts.keeper import Keeper, RouterReport
from headpond.rollouts.log import RolloutLog
from headpond.rollouts.metrics import RolloutMetrics
from headpond.rollouts.probe import Prober
from headpond.rollouts.ray_keys import RayKeys
from headpond.rollouts.shadow import Shadows
from headpond.routing import RoutedBackend
from headpond.serve_edge import behind_serve
from headpond.serve_handle import (
    ROUTER_DEPLOYMENT,
    ServeHandle,
    connect,
    router_reports,
    routers_of,
)
from headpond.settings import Settings
from headpond.telemetry.logs import configure_logging
from headpond.telemetry.tracing import request_tracer
from headpond.tenancy.quotas import check_units

if TYPE_CHECKING:
    from headpond.http.app import ASGIApp


class RouterArgs(BaseModel):
    """The `args` of the router's application in a Serve config.

    Attributes:
        settings: Keys, tenants and telemetry: inline, or the path of a YAML file.
        jobs: Where files and batches are kept, `{}` for this machine; without it there are
            none.
        drain_s: How long a router that is stopped may finish what it forwards; no less than
            the models' own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    settings: Settings | str = Settings()
    jobs: JobStore | None = None
    drain_s: float = Field(default=30.0, ge=0)


class RouterConfig(BaseModel):
    """The router's `user_config`: it can change while the router runs.

    Attributes:
        aliases: For each alias the applications behind it, with their weights.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    aliases: dict[str, dict[str, int]] = Field(default_factory=dict)


class Router:
    """One replica of the router."""

    async def __init__(self, args: RouterArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        """Start with an empty alias table; `reconfigure` brings the real one."""
        self._settings = resolved(args.settings)
        configure_logging(self._settings, sys.__stderr__)
        context = serve.get_replica_context()
        self._app = context.app_name
        self._everyone: ServeHandle | None = None
        metrics = RolloutMetrics()
        self._routers = Routers(context.replica_id.unique_id, self._expositions, metrics)
        self._backend = RoutedBackend(connect)
        records, forward = workloads(), self._backend.forward
        compared = {name: record.compared for name, record in records.items() if record.compared}
        self._keeper = Keeper(
            RolloutLog(RayKeys()),
            self._backend,
            Shadows(forward, compared).copy,
            Prober(forward, records, self._backend.workload_of).ask,
            partial(router_reports, self._app),
            metrics,
        )
        self._jobs = None if args.jobs is None else JobsDoor(JobsAccess(args.jobs))

    async def reconfigure(self, config: dict[str, object]) -> None:
        """Take a new alias table; called by Serve at start and on every change."""
        parsed = RouterConfig.model_validate(config)
        await self._keeper.configure(parsed.aliases)

    async def rollouts(self) -> RouterReport:
        """Return what this router knows of rollouts; asked by the others, and by commands."""
        return self._keeper.report()

    async def exposition(self) -> tuple[str, str]:
        """Return this router's name and what it counts; asked by the others."""
        return self._routers.own()

    async def _expositions(self) -> Mapping[str, str]:
        if self._everyone is None:
            self._everyone = routers_of(self._app)
        return await self._everyone.expositions()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the app of every workload that is installed."""
        records = list(workloads().values())
        check_units(self._settings, records)
        kept = self._settings.usage
        app = build_app(
            records,
            self._backend,
            self._settings,
            jobs=self._jobs,
            usage=None if kept is None else UsageDoor(kept),
            routers=self._routers,
            tracer=request_tracer(self._settings),
        )
        return behind_serve(with_strays(app, self._backend.knows))


def build(args: Mapping[str, object] | RouterArgs) -> Application:
    """Build the router's application: `import_path: headpond.router:build`.

    Raises:
        pydantic.ValidationError: Names the argument at fault.
    """
    # Serve hands over plain mappings: it reads annotations that are not strings only.
    parsed = RouterArgs.model_validate(args)
    deployment: Deployment = serve.deployment(
        name=ROUTER_DEPLOYMENT,
        max_ongoing_requests=MAX_ONGOING,
        health_check_period_s=HEALTH_PERIOD_S,
        health_check_timeout_s=HEALTH_TIMEOUT_S,
        # What the models end with at the last moment has to get through.
        graceful_shutdown_timeout_s=parsed.drain_s + 5.0,
        ray_actor_options={"num_cpus": 0},
    )(serve.ingress()(Router))
    return deployment.bind(parsed)
