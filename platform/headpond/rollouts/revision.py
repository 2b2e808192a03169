"""A revision: one change of what an alias stands for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from headpond.rollouts.guard import Guard

Share = Annotated[float, Field(gt=0, le=1)]
Weights = dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]

_STRICT = ConfigDict(frozen=True, extra="forbid")


class ShadowPlan(BaseModel):
    """Whose answers are compared with the callers', without them seeing any.

    Attributes:
        target: The application that gets copies.
        share: Of the alias's calls.
        tolerance: By how much numbers of two answers that agree may differ.
    """

    model_config = _STRICT

    target: str
    share: Share
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Revision(BaseModel):
    """What an alias stands for from then on.

    Attributes:
        alias: The name callers use.
        number: From 1, without gaps.
        at: When it was decided.
        cause: What was done; `guard` is a rollback that nobody asked for, `config` one that
            followed from another entry in the router's config.
        reason: In words, where there is more to say.
        base: What the router's config gave the alias then; when that changes, it wins.
        weights: What the alias gets instead; nothing for what the config says.
        canary: The target that is on trial, or was promoted.
        guard: When the trial ends by itself.
        shadow: Who gets copies of calls.
    """

    model_config = _STRICT

    alias: Annotated[str, Field(min_length=1)]
    number: Annotated[int, Field(ge=1)]
    at: AwareDatetime
    cause: Literal["set", "promote", "rollback", "guard", "reset", "config"]
    reason: str = ""
    base: Weights
    weights: Weights = Field(default_factory=dict)
    canary: str | None = None
    guard: Guard | None = None
    shadow: ShadowPlan | None = None

    @property
    def on_trial(self) -> str | None:
        """The canary while it shares its alias's traffic with others."""
        others = any(weight > 0 for app, weight in self.weights.items() if app != self.canary)
        shares = self.canary is not None and self.weights.get(self.canary, 0) > 0
        return self.canary if shares and others else None

    def targets(self) -> dict[str, float]:
        """Return the weights; who only gets copies has a weight of 0."""
        silent = {} if self.shadow is None else {self.shadow.target: 0.0}
        return {**silent, **(self.weights or self.base)}
