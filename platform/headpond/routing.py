"""The routed backend: alias -> application -> replica, with retries before the first byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace

from headpond.admission.outlook import Outlook
from headpond.bundle.alias import AliasTable
from headpond.bundle.manifest import names_of
from headpond.call import Answer, Call, Claim, Event, ModelCard
from headpond.errors import (
    DeadlineExceeded,
    HeadpondError,
    ModelNotFound,
    NotReady,
    Overloaded,
    RequestCancelled,
    WorkerLost,
)
from headpond.hop import ModelHandle, ReplicaStatus
from headpond.hub import LaneHub, OpenStream
from headpond.lane import LaneAddress
from headpond.rollouts.trial import Trial
from headpond.telemetry.exposition import merge_expositions
from headpond.units import Work
from headpond.whole_answer import WholeAnswer

_ATTEMPTS = 2
"""A lost replica is tried once more elsewhere; more would multiply a poison request."""

_GRACE_S = 1.0
"""Beyond the deadline, which the replica keeps itself, before the router stops waiting."""

_STATUS_PERIOD_S = 1.0
_LEAST_PAUSE_S = 0.01

_ALIVE_S = 2.0
"""So long after a call that went well an application counts as running, whatever polls say.

While a replica is replaced, a poll may find nobody although its successor serves already.
"""


class RoutedBackend:
    """Chooses the application that an alias stands for and forwards calls to its replicas."""

    def __init__(
        self,
        connect: Callable[[str], ModelHandle | None],
    ) -> None:
        """Start with an empty table.

        Args:
            connect: Returns the handle of an application, or None while it does not exist.
        """
        self._connect = connect
        self._aliases = AliasTable()
        self._handles: dict[str, ModelHandle] = {}
        self._statuses: dict[str, Sequence[ReplicaStatus]] = {}
        self._outlooks: dict[str, Outlook] = {}
        self._served_s: dict[str, float] = {}
        self._known: dict[str, ReplicaStatus] = {}
        self._asleep: set[str] = set()
        self._trials: Mapping[str, Trial] = {}
        self._polling: asyncio.Task[None] | None = None
        self._hub = LaneHub()

    async def start(self, aliases: AliasTable, trials: Mapping[str, Trial] | None = None) -> None:
        """Take a new alias table; calls under way keep the application they were sent to.

        Args:
            aliases: What each name stands for.
            trials: What watches the calls of an alias, by its name.
        """
        # One poll at a time: two would change the handles under each other.
        await self._stop_polling()
        # Who comes has to be known before calls are sent there, who goes until none are.
        await self._poll(_applications(self._aliases) | _applications(aliases))
        self._aliases, self._trials = aliases, trials or {}
        self._polling = asyncio.create_task(self._keep_polling())

    async def stop(self) -> None:
        """Stop polling and close all lanes; open streams end with `WorkerLost`."""
        await self._stop_polling()
        await self._hub.close()

    async def submit(self, call: Call) -> Answer:
        """Send a call to a replica of the application its model name stands for.

        Raises:
            ModelNotFound: The name is neither an alias nor a served version.
            NotReady: No replica of the application can serve now.
            Overloaded: By what its replicas said last, none of them would be done in time.
            WorkerLost: The replica died, and so did the one that was tried next.
            HeadpondError: Whatever the replica refused the call with.
        """
        deadline_at = time.monotonic() + call.deadline_s
        app = self._resolve(call)
        for attempt in range(1, _ATTEMPTS + 1):
            left_s = deadline_at - time.monotonic()
            if left_s <= 0:
                raise DeadlineExceeded
            try:
                return await self._ask(replace(call, deadline_s=left_s), app)
            except WorkerLost:
                if attempt == _ATTEMPTS:
                    raise
                # Another version, where there is one: this one may be what kills replicas.
                app = self._resolve(call, lost=app)
        raise WorkerLost

    async def forward(self, call: Call, app: str) -> Answer:
        """Send a call to a replica of one application, whatever its model name stands for.

        Raises:
            NotReady: No replica of the application can serve now.
            HeadpondError: What became of the call.
        """
        self._check_ready(call.model, app)
        outlook = self._outlooks.setdefault(app, Outlook())
        outlook.send(call, time.monotonic())
        try:
            async with asyncio.timeout(call.deadline_s + _GRACE_S):
                answer = await self._send(self._handles[app], call)
        except TimeoutError:
            raise DeadlineExceeded from None
        except Overloaded as refusal:
            if type(refusal) is Overloaded:
                outlook.refused(call, time.monotonic())
            raise
        finally:
            outlook.answered(call)
        self._served_s[app] = time.monotonic()
        outlook.done(call, time.monotonic())
        return answer

    async def _ask(self, call: Call, app: str) -> Answer:
        """Send a call on, watched where its model is on trial."""
        trial = self._trials.get(call.model)
        if trial is None:
            return await self.forward(call, app)
        watching = trial.begin(call, app)
        try:
            return watching.answered(await self.forward(call, app))
        except HeadpondError as error:
            watching.failed(error)
            raise

    def check_turn(self, claim: Claim) -> None:
        """Refuse a call that every application of its workload would refuse.

        Raises:
            Overloaded: It would wait too long everywhere.
        """
        outlooks = [
            outlook
            for app, outlook in self._outlooks.items()
            if app in self._known and self._known[app].card.workload == claim.workload
        ]
        refusals = [outlook.refusal(claim, time.monotonic()) for outlook in outlooks]
        if refusals and None not in refusals:
            raise min(filter(None, refusals), key=lambda refusal: refusal.retry_after_s or 0.0)

    def knows(self, alias: str) -> bool:
        """Say whether there is such an alias."""
        return alias in self._aliases.targets()

    def only_model(self, workload: str) -> str | None:
        """Return the one alias whose application has said that it serves the workload."""
        aliases = self._aliases.targets()
        names = [name for name in aliases if self.workload_of(name) == workload]
        return names[0] if len(names) == 1 else None

    def workload_of(self, model: str) -> str | None:
        """Return the workload of an alias or a version whose application has ever answered."""
        apps = self._aliases.targets().get(model) or [self._version(model) or ""]
        return next((self._known[app].card.workload for app in apps if app in self._known), None)

    def bundle_of(self, model: str, token: str) -> str | None:
        """Return the bundle of the application that a call for a model would go to now.

        Raises:
            NotReady: The application has never answered.
        """
        app = self._aliases.choose(model, token, self._is_ready) or self._version(model)
        if app is None:
            return None
        if app not in self._known:
            raise NotReady(f"The model `{model}` is not ready yet.", retry_after_s=1.0)
        return self._known[app].bundle

    async def models(self) -> Sequence[ModelCard]:
        """Return one card per alias whose application has answered."""
        cards = []
        for name, targets in self._aliases.targets().items():
            known = [self._known[app] for app in targets if self._is_served(app)]
            if known:
                bundles = tuple(dict.fromkeys(status.bundle for status in known))
                cards.append(replace(known[0].card, name=name, bundles=bundles))
        return cards

    async def not_ready(self) -> Mapping[str, str]:
        """Return the aliases none of whose targets can serve, and why."""
        if self._polling is None:
            return {"*": "the router has no alias table yet"}
        reasons = {}
        for name in self._aliases.targets():
            found = [self._reason(app) for app in self._aliases.sharing(name)]
            if None not in found:
                reasons[name] = next(filter(None, found))
        return reasons

    async def metrics(self) -> str:
        """Return the metrics of every replica behind the router, merged."""
        texts: dict[str, str] = {}
        for handle in self._handles.values():
            with suppress(WorkerLost):
                texts |= await handle.expositions()
        return merge_expositions(texts)

    def _resolve(self, call: Call, lost: str | None = None) -> str:
        def ready(app: str) -> bool:
            return app != lost and self._is_ready(app)

        app = self._aliases.choose(call.model, call.lot, ready) or self._version(call.model)
        if app is None:
            raise ModelNotFound.named(call.model)
        self._check_ready(call.model, app)
        return app

    def _check_ready(self, model: str, app: str) -> None:
        if (reason := self._reason(app)) is not None:
            raise NotReady(f"The model `{model}` is not ready: {reason}.", retry_after_s=1.0)

    def _version(self, model: str) -> str | None:
        """Return an application that serves the bundle of this name."""
        for app, status in self._known.items():
            if self._is_served(app) and model in names_of(status.bundle):
                return app
        return None

    def _is_ready(self, app: str) -> bool:
        return self._reason(app) is None

    def _is_served(self, app: str) -> bool:
        """Say whether an application has replicas, or will have some when they are needed."""
        return app in self._known and bool(self._statuses.get(app) or app in self._asleep)

    def _reason(self, app: str) -> str | None:
        statuses = self._statuses.get(app, ())
        if not statuses and app in self._asleep:
            return None  # the call that is sent there wakes it
        if not statuses:
            served_s = self._served_s.get(app, -_ALIVE_S)
            known = app in self._handles and time.monotonic() - served_s < _ALIVE_S
            return None if known else "no replica is running"
        reasons = [status.reason for status in statuses]
        return None if None in reasons else reasons[0]

    async def _send(self, handle: ModelHandle, call: Call) -> Answer:
        if call.stream:
            return await _StreamedAnswer.open(handle, call, self._hub)
        answered = await handle.answer(call)
        if isinstance(answered, HeadpondError):
            raise answered
        if isinstance(answered.error, WorkerLost):
            raise answered.error  # the caller has got nothing yet, so another may be tried
        return WholeAnswer(answered.accepted, answered.events, answered.error)

    async def _stop_polling(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            with suppress(asyncio.CancelledError):
                await self._polling

    async def _keep_polling(self) -> None:
        wait_s = _STATUS_PERIOD_S
        while True:
            await asyncio.sleep(wait_s)
            began_s = time.monotonic()
            await self._poll(_applications(self._aliases))
            # Waiting for one that does not answer is part of the period.
            wait_s = max(_STATUS_PERIOD_S - (time.monotonic() - began_s), _LEAST_PAUSE_S)

    async def _poll(self, apps: Set[str]) -> None:
        for app in apps - set(self._handles):
            if (handle := self._connect(app)) is not None:
                self._handles[app] = handle
        for gone in set(self._handles) - apps:
            del self._handles[gone]
            self._served_s.pop(gone, None)
            self._outlooks.pop(gone, None)
            self._known.pop(gone, None)
        polled = await asyncio.gather(*(self._status(app) for app in self._handles))
        self._statuses = dict(zip(self._handles, polled, strict=True))
        for app, known in self._statuses.items():
            outlook = self._outlooks.setdefault(app, Outlook())
            outlook.tell([status.backlog for status in known], time.monotonic())
        self._known |= {app: known[0] for app, known in self._statuses.items() if known}
        silent = [app for app, known in self._statuses.items() if not known]
        asleep = await asyncio.gather(*(self._is_asleep(app) for app in silent))
        self._asleep = {app for app, sleeps in zip(silent, asleep, strict=True) if sleeps}

    async def _status(self, app: str) -> Sequence[ReplicaStatus]:
        try:
            async with asyncio.timeout(_STATUS_PERIOD_S):
                return await self._handles[app].statuses()
        except (TimeoutError, WorkerLost):
            return ()

    async def _is_asleep(self, app: str) -> bool:
        try:
            async with asyncio.timeout(_STATUS_PERIOD_S):
                return await self._handles[app].asleep()
        except (TimeoutError, WorkerLost):
            return app in self._asleep


def _applications(aliases: AliasTable) -> set[str]:
    return {app for targets in aliases.targets().values() for app in targets}


class _StreamedAnswer:
    """An answer whose events come over a lane while its Serve call is held open."""

    def __init__(self, hub: LaneHub, stream: OpenStream, held: asyncio.Task[None]) -> None:
        self.accepted = stream.accepted.result()
        self._hub = hub
        self._stream = stream
        self._held = held

    @classmethod
    async def open(cls, handle: ModelHandle, call: Call, hub: LaneHub) -> _StreamedAnswer:
        stream = hub.open_stream()
        held = asyncio.create_task(_hold(handle, call, hub, stream))
        try:
            await stream.accepted
        except BaseException:
            hub.close_stream(stream)
            stream.accepted.cancel()
            held.cancel()
            raise
        if stream.address is not None:
            handle.comes_over(stream.number, stream.address)
        # The replica keeps the deadline; this is for a replica that stands still.
        stream.mailbox.end_after(call.deadline_s + _GRACE_S, stream.fail, DeadlineExceeded())
        return cls(hub, stream, held)

    def batches(self) -> AsyncIterator[Sequence[Event]]:
        return self._stream.mailbox.batches()

    async def feed(self, payload: object, units: int) -> None:
        await self._hub.feed(self._stream, payload, units)

    @property
    def waiting_units(self) -> int:
        return self._stream.window.waiting_units

    def when_over(self, told: Callable[[Work], None]) -> None:
        self._stream.last_word.tell(told)

    async def close(self) -> None:
        if not self._stream.mailbox.over:
            self._held.cancel()
            self._stream.fail(RequestCancelled())
        self._hub.close_stream(self._stream)


async def _hold(handle: ModelHandle, call: Call, hub: LaneHub, stream: OpenStream) -> None:
    """Hold the Serve call of a stream; what goes wrong with it ends the stream."""
    try:
        outcome = await handle.stream(call, hub.router_id, stream.number)
        while isinstance(outcome, LaneAddress):
            # One more lane is open after each turn, so there are no more than replicas.
            await hub.connect(outcome)
            outcome = await handle.stream(call, hub.router_id, stream.number)
    except WorkerLost as lost:
        stream.fail(lost)
        return
    if outcome is not None:
        stream.fail(outcome)
