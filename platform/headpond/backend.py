"""The local backend: one bundle's loop behind the HTTP layer of its own replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headpond.bundle.manifest import Manifest
from headpond.call import Call, Claim, ModelCard
from headpond.errors import HeadpondError, ModelNotFound
from headpond.record import WorkloadRecord
from headpond.scheduling.answer import LoopAnswer
from headpond.scheduling.loop import Loop
from headpond.telemetry.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class LocalBackend:
    """Answers calls with the loop in this process.

    Attributes:
        record: The workload served here.
        manifest: The bundle served here.
        alias: The name callers use; the bundle's own names work too.
        loop: The running loop.
        metrics: What `/metrics` shows.
    """

    record: WorkloadRecord
    manifest: Manifest
    alias: str
    loop: Loop
    metrics_source: Metrics

    def check_turn(self, claim: Claim) -> None:
        """Refuse a call that would wait too long whatever it asks for.

        Raises:
            Overloaded: It would.
        """
        try:
            self.loop.check_turn(claim)
        except HeadpondError as refusal:
            self.metrics_source.refuse(refusal)
            raise

    async def submit(self, call: Call) -> LoopAnswer:
        """Admit a call for this bundle's model.

        Raises:
            ModelNotFound: Another model is asked for.
            HeadpondError: The loop refused the call.
        """
        if call.model != self.alias and call.model not in self.manifest.names:
            raise ModelNotFound.named(call.model)
        return await self.admit(call)

    async def admit(self, call: Call) -> LoopAnswer:
        """Admit a call whose model a router has resolved to this bundle.

        Raises:
            ModelNotFound: The model serves another workload.
            HeadpondError: The loop refused the call.
        """
        if call.workload != self.record.name:
            raise ModelNotFound(
                f"The model `{call.model}` serves {self.record.name}, not {call.workload}.",
                param="model",
            )
        return await self.loop.submit(call)

    def only_model(self, workload: str) -> str | None:
        """Return the alias of what is served here; that it is of the workload is checked later."""
        del workload
        return self.alias

    def workload_of(self, model: str) -> str | None:
        """Return the workload served here; that the model is served is checked later."""
        del model
        return self.record.name

    def bundle_of(self, model: str, token: str) -> str | None:
        """Return the bundle served here, when the model is one of its names."""
        del token
        known = model == self.alias or model in self.manifest.names
        return self.manifest.ref if known else None

    @property
    def card(self) -> ModelCard:
        """The one model served here."""
        return ModelCard(
            name=self.alias,
            workload=self.record.name,
            bundles=(self.manifest.ref,),
            created_s=self.manifest.created_s,
            limits=self.manifest.limits,
        )

    @property
    def reason(self) -> str | None:
        """Why nothing can be served now; None when it can."""
        snapshot = self.loop.snapshot()
        if snapshot.stuck:
            return "the engine has made no progress in time"
        if snapshot.lost:
            return "the engine has lost a process that it computes with"
        if snapshot.stopping:
            return "the replica is shutting down"
        return None

    async def models(self) -> Sequence[ModelCard]:
        """Return the card of the one model."""
        return (self.card,)

    async def not_ready(self) -> Mapping[str, str]:
        """Return the one model with its reason, or nothing."""
        return {self.alias: self.reason} if self.reason is not None else {}

    async def metrics(self) -> str:
        """Return the loop's metrics in the Prometheus text format."""
        return self.metrics_source.text()
