"""The keeper of a router's aliases: follows the log, and takes back a canary that fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import structlog

from headpond.bundle.alias import AliasTable
from headpond.engine import Json
from headpond.errors import HeadpondError
from headpond.rollouts.changes import AliasState, effective
from headpond.rollouts.log import Conflict, RolloutLog
from headpond.rollouts.metrics import RolloutMetrics
from headpond.rollouts.revision import Revision
from headpond.rollouts.trial import Copy, Trial, TrialReport, summed

log = structlog.get_logger(__name__)

_PERIOD_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RouterReport:
    """One router's view; crosses to the other routers, and to commands.

    Attributes:
        config: What its config says of each alias.
        numbers: The last revision of each alias that it acts by.
        trials: What it has seen of those on trial.
    """

    config: Mapping[str, Mapping[str, float]]
    numbers: Mapping[str, int]
    trials: Sequence[TrialReport]


Ask = Callable[[str, str], Awaitable[Json]]
"""Asks an alias's example of an application; None where there is no answer to compare."""

Peers = Callable[[], Awaitable[Sequence[RouterReport]]]
"""Asks every router, this one included."""


class Table(Protocol):
    """What routes by a table of aliases."""

    async def start(self, aliases: AliasTable, trials: Mapping[str, Trial] | None = None) -> None:
        """Take a new table, and what watches the calls of an alias."""
        ...


class Keeper:
    """Keeps one router's table up to date."""

    def __init__(
        self,
        rollouts: RolloutLog,
        table: Table,
        copy: Copy,
        ask: Ask,
        peers: Peers,
        metrics: RolloutMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without aliases; `configure` brings them.

        Args:
            rollouts: Where revisions are.
            table: Gets every new table.
            copy: Sends copies to shadows.
            ask: Asks canaries the same again.
            peers: Asks every router.
            metrics: Where rollbacks are counted, and trials shown.
            clock: Monotonic seconds.
        """
        self._log = rollouts
        self._table = table
        self._copy = copy
        self._ask = ask
        self._peers = peers
        self._metrics = metrics
        self._clock = clock
        self._config: Mapping[str, Mapping[str, float]] = {}
        self._tips: Mapping[str, Revision] = {}
        self._trials: dict[str, Trial] = {}
        self._asked_s: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def configure(self, config: Mapping[str, Mapping[str, float]]) -> None:
        """Take the aliases of the config; what it changes ends the rollout of that alias."""
        self._config = config
        await self._follow()
        await self._end_overruled()
        await self._install()
        if not self._tasks:
            # An answer may take long; judging does not wait for it.
            self._tasks = [
                asyncio.create_task(self._keep(each)) for each in (self.turn, self.probe)
            ]

    async def stop(self) -> None:
        """Follow the log no longer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def turn(self) -> None:
        """Take what is new in the log, and judge what is on trial."""
        if await self._follow():
            await self._install()
        if any(trial.revision.guard is not None for trial in self._trials.values()):
            await self._judge(await self._peers())

    async def probe(self) -> None:
        """Ask those canaries whose time has come."""
        for alias, trial in list(self._trials.items()):
            guard, canary = trial.revision.guard, trial.revision.canary
            if guard is None or guard.drift_s is None or canary is None:
                continue
            now_s = self._clock()
            if now_s - self._asked_s.get(alias, -guard.drift_s) >= guard.drift_s:
                self._asked_s[alias] = now_s
                trial.drift.take(await self._ask(alias, canary))

    def report(self) -> RouterReport:
        """Return what this router acts by, and has seen."""
        return RouterReport(
            config=self._config,
            numbers={alias: tip.number for alias, tip in self._tips.items()},
            trials=[trial.report() for trial in self._trials.values()],
        )

    async def _keep(self, turn: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(_PERIOD_S)
            try:
                await turn()
            except HeadpondError as error:
                # The table that is known goes on; the store or a router may be back soon.
                log.warning("rollouts_unknown", reason=error.message)

    async def _follow(self) -> bool:
        tips = await asyncio.to_thread(self._log.tips)
        changed, self._tips = tips != self._tips, tips
        return changed

    async def _end_overruled(self) -> None:
        for alias in self._tips:
            ended = (await self._state(alias)).overruled(datetime.now(UTC))
            if ended is not None:
                await self._append(ended)
        await self._follow()

    async def _install(self) -> None:
        trials: dict[str, Trial] = {}
        for alias, tip in self._tips.items():
            counts = tip.base == self._config.get(alias, {})
            if counts and (tip.on_trial is not None or tip.shadow is not None):
                known = self._trials.get(alias)
                same = known is not None and known.revision == tip
                trials[alias] = known if known and same else Trial(tip, self._clock, self._copy)
        self._trials = trials
        self._metrics.watch(list(trials.values()))
        await self._table.start(AliasTable(effective(self._config, self._tips)), trials)

    async def _judge(self, reports: Sequence[RouterReport]) -> None:
        found = [each for report in reports for each in report.trials]
        for alias, trial in list(self._trials.items()):
            guard = trial.revision.guard
            if guard is None:
                continue
            seen = summed(alias, trial.revision.number, found)
            reason = trial.drift.reason or guard.breach(seen.canary, seen.others, seen.agreed)
            if reason is not None:
                await self._take_back(alias, reason)

    async def _take_back(self, alias: str, reason: str) -> None:
        state = await self._state(alias)
        if state.tip is None or state.tip.number != self._trials[alias].revision.number:
            return  # somebody changed it meanwhile
        revision = state.rollback(datetime.now(UTC), reason=reason, by_guard=True)
        if await self._append(revision):
            self._metrics.count_rollback(alias)
            log.error("canary_rolled_back", alias=alias, canary=state.tip.canary, reason=reason)
        await self._follow()
        await self._install()

    async def _state(self, alias: str) -> AliasState:
        revisions = await asyncio.to_thread(self._log.revisions, alias)
        return AliasState(name=alias, base=self._config.get(alias, {}), revisions=revisions)

    async def _append(self, revision: Revision) -> bool:
        """Add a revision; another router may have come first."""
        with suppress(Conflict):
            await asyncio.to_thread(self._log.append, revision)
            return True
        return False
