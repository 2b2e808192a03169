"""The desk: what a command asks of the running platform about its aliases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Self

from ray.serve.schema import ServeApplicationSchema

from headpond.bundle.document import read_manifest
from headpond.bundle.manifest import names_of
from headpond.config_file import located
from headpond.errors import BundleError, InvalidRequest, NotReady, WorkerLost
from headpond.local_ray import wait_running
from headpond.rollouts.changes import AliasState
from headpond.rollouts.guard import Guard
from headpond.rollouts.keeper import RouterReport
from headpond.rollouts.log import RolloutLog
from headpond.rollouts.ray_keys import RayKeys
from headpond.rollouts.revision import Revision, ShadowPlan
from headpond.rollouts.second import second_application
from headpond.rollouts.started import MODEL, ROUTER
from headpond.rollouts.trial import TrialReport, summed
from headpond.serve_handle import connect, router_reports
from headpond.serving import amend, application_configs

_FOLLOWED_S = 30.0
_POLL_S = 0.2


@dataclass(frozen=True, kw_only=True)
class AliasView:
    """An alias as `headpond alias list` shows it.

    Attributes:
        alias: The name callers use.
        targets: Weights by application.
        tip: The last revision, also one that the config has overruled; None without any.
        seen: What the routers have seen of its trial, while it has one.
    """

    alias: str
    targets: dict[str, float]
    tip: Revision | None
    seen: TrialReport | None

    def plain(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return {
            "alias": self.alias,
            "targets": self.targets,
            "revision": None if self.tip is None else self.tip.model_dump(mode="json"),
            "seen": None if self.seen is None else _plain(self.seen),
        }


def _plain(seen: TrialReport) -> dict[str, object]:
    sides = {
        side: {
            "ended": tally.ended,
            "failed": tally.failed,
            "p95_s": {measure: tally.quantile_s(measure, 0.95) for measure in tally.took},
        }
        for side, tally in (("canary", seen.canary), ("others", seen.others))
    }
    return {**sides, "copies": asdict(seen.agreed)}


class RolloutDesk:
    """Reads and changes aliases through the log, and applications through Serve."""

    def __init__(self, router: str, log: RolloutLog) -> None:
        """Work with the routers of one application."""
        self._router = router
        self._log = log

    @classmethod
    def open(cls) -> Self:
        """Find the router of the cluster that this process has joined.

        Raises:
            NotReady: None is deployed.
        """
        routers = [name for name, app in application_configs().items() if app.import_path == ROUTER]
        if not routers:
            raise NotReady("no router is deployed here, so there are no aliases")
        return cls(routers[0], RolloutLog(RayKeys()))

    def views(self) -> Sequence[AliasView]:
        """Return every alias."""
        reports = self._reports()
        config, tips = reports[0].config, self._log.tips()
        found = [each for report in reports for each in report.trials]
        views = []
        for alias in sorted({*config, *tips}):
            tip = tips.get(alias)
            counts = tip is not None and tip.base == config.get(alias, {})
            targets = tip.targets() if tip is not None and counts else dict(config.get(alias, {}))
            seen = summed(alias, tip.number, found) if tip is not None else None
            watched = seen is not None and any(
                (each.alias, each.number) == (alias, seen.number) for each in found
            )
            views.append(
                AliasView(alias=alias, targets=targets, tip=tip, seen=seen if watched else None)
            )
        return [view for view in views if view.targets]

    def view(self, alias: str) -> AliasView:
        """Return one alias.

        Raises:
            BundleError: There is none of that name.
        """
        found = next((view for view in self.views() if view.alias == alias), None)
        if found is None:
            raise BundleError(f"there is no alias {alias!r}", param=f"aliases.{alias}")
        return found

    def application(self, target: str) -> str:
        """Return the application that serves a version.

        Args:
            target: An application, or a name of a bundle: `name@version`.

        Raises:
            InvalidRequest: None does, or not yet.
        """
        configs = application_configs()
        models = [name for name, app in configs.items() if app.import_path == MODEL]
        if target in models:
            return target
        for name in models:
            if any(target in names_of(bundle) for bundle in _bundles(name)):
                return name
        raise InvalidRequest(
            f"no application serves {target!r}; start it by --bundle. There are {', '.join(models)}",
            param="target",
        )

    def start(self, alias: str, target: str, bundle: str, timeout_s: float) -> None:
        """Start a version beside the one that has an alias's traffic, and wait until it runs.

        One that does not come up (a fixture came out differently) is taken down again.

        Raises:
            BundleError: The bundle is not the version that is asked for.
            NotReady: It does not come up, with the reason.
        """
        manifest = read_manifest(located(bundle))
        if target not in manifest.names:
            raise BundleError(
                f"{bundle} is {manifest.name}@{manifest.version}, not {target}", param="bundle"
            )
        view = self.view(alias)
        first = max(view.targets, key=lambda app: view.targets[app])
        config = application_configs().get(first)
        if config is None:
            raise NotReady(f"application {first!r}, which has the traffic, is not deployed")
        second = ServeApplicationSchema.model_validate(
            second_application(config.model_dump(exclude_unset=True), bundle, manifest)
        )
        self._log.note_started(second.name)
        amend(add=[second])
        try:
            wait_running(timeout_s, lambda *_: None, only=second.name)
        except NotReady:
            self._take_down([second.name])
            raise

    def set(
        self,
        alias: str,
        app: str,
        *,
        share: float | None,
        guard: Guard | None,
        shadow: ShadowPlan | None,
    ) -> Revision:
        """Give an application a share of an alias's calls, copies of them, or all of them."""
        state = self._state(alias)
        return self._done(
            state.set(app, datetime.now(UTC), share=share, guard=guard, shadow=shadow)
        )

    def promote(self, alias: str) -> Revision:
        """Give the canary all of the traffic."""
        return self._done(self._state(alias).promote(datetime.now(UTC)))

    def rollback(self, alias: str) -> Revision:
        """Return to what an alias was before its canary came."""
        return self._done(self._state(alias).rollback(datetime.now(UTC)))

    def reset(self, alias: str) -> Revision:
        """Return to what the config says of an alias."""
        return self._done(self._state(alias).reset(datetime.now(UTC)))

    def idle(self) -> Sequence[str]:
        """Return the applications that rollouts started and no alias needs."""
        needed = {app for view in self.views() for app in view.targets}
        return [app for app in self._log.started() if app not in needed]

    def remove(self, apps: Sequence[str]) -> Sequence[str]:
        """Take down those applications that no alias needs any more; returns their names."""
        needed = {app for view in self.views() for app in view.targets}
        gone = [app for app in apps if app not in needed]
        if gone:
            self._take_down(gone)
        return gone

    def _take_down(self, apps: Sequence[str]) -> None:
        amend(remove=apps)
        for app in apps:
            self._log.note_removed(app)

    def _done(self, revision: Revision) -> Revision:
        """Add a revision, and wait until every router acts by it.

        Raises:
            BundleError: A target with traffic is not deployed.
            NotReady: A router has not taken it in time.
        """
        deployed = application_configs()
        missing = [app for app in revision.targets() if app not in deployed]
        if missing:
            raise BundleError(
                f"application {missing[0]!r} is not deployed (any more); start it by --bundle",
                param=f"aliases.{revision.alias}",
            )
        self._log.append(revision)
        until = time.monotonic() + _FOLLOWED_S
        while time.monotonic() < until:
            numbers = [report.numbers.get(revision.alias, 0) for report in self._reports()]
            if min(numbers) >= revision.number:
                return revision
            time.sleep(_POLL_S)
        raise NotReady(f"a router has not taken revision {revision.number} yet")

    def _state(self, alias: str) -> AliasState:
        base = self._reports()[0].config.get(alias, {})
        return AliasState(name=alias, base=base, revisions=self._log.revisions(alias))

    def _reports(self) -> Sequence[RouterReport]:
        reports = asyncio.run(router_reports(self._router))
        if not reports:
            raise NotReady(f"no router of {self._router!r} answers")
        return reports


def _bundles(app: str) -> Sequence[str]:
    """Return the bundles that an application's replicas say they serve."""
    handle = connect(app)
    if handle is None:
        return ()
    try:
        return [status.bundle for status in asyncio.run(handle.statuses())]
    except WorkerLost:
        return ()
