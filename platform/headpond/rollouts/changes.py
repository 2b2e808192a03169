"""The changes an alias goes through, each a pure step from its revisions to the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headpond.bundle.alias import Alias
from headpond.errors import BundleError
from headpond.rollouts.guard import Guard
from headpond.rollouts.revision import Revision, ShadowPlan


@dataclass(frozen=True, kw_only=True)
class AliasState:
    """An alias with its past.

    Attributes:
        name: The alias.
        base: What the router's config says of it now; empty when it says nothing.
        revisions: Its kept revisions, oldest first.
    """

    name: str
    base: Mapping[str, float]
    revisions: Sequence[Revision]

    @property
    def tip(self) -> Revision | None:
        """The revision that counts now; None where the config does."""
        tip = self.revisions[-1] if self.revisions else None
        return tip if tip is not None and tip.base == self.base else None

    @property
    def weights(self) -> Mapping[str, float]:
        """What the alias stands for now."""
        return self.base if self.tip is None else self.tip.weights or self.base

    def set(
        self,
        target: str,
        at: datetime,
        *,
        share: float | None,
        guard: Guard | None,
        shadow: ShadowPlan | None,
    ) -> Revision:
        """Give a target a share of the calls; the others share the rest as they did.

        Args:
            target: An application.
            at: When it is decided.
            share: Between 0 and 1; None for all of the traffic, unless it gets only copies.
            guard: When the target is taken back.
            shadow: Who gets copies of calls.

        Raises:
            BundleError: There is nobody to share with.
        """
        others = {app: w for app, w in self.weights.items() if app != target and w > 0}
        if share is None:
            weights = dict(self.weights) if shadow is not None else {target: 1.0}
        elif not others:
            raise BundleError(
                f"alias {self.name!r} has no other target to share with", param="canary"
            )
        else:
            whole = sum(others.values())
            weights = {app: w / whole * (1 - share) for app, w in others.items()}
            weights[target] = share  # the last, so that growing it moves calls to it only
        checked = Alias(name=self.name, weights=weights)
        return self._next(
            at,
            cause="set",
            weights=dict(checked.weights),
            canary=target,
            guard=guard,
            shadow=shadow,
        )

    def promote(self, at: datetime) -> Revision:
        """Give the canary all of the traffic.

        Raises:
            BundleError: No canary is on trial.
        """
        tip = self.tip
        if tip is None or tip.on_trial is None:
            raise BundleError(f"alias {self.name!r} has no canary", param=f"aliases.{self.name}")
        return self._next(at, cause="promote", weights={tip.on_trial: 1.0}, canary=tip.on_trial)

    def rollback(self, at: datetime, *, reason: str = "", by_guard: bool = False) -> Revision:
        """Return to what the alias was before its canary got anything.

        Args:
            at: When it is decided.
            reason: Why, in words.
            by_guard: Whether a guard asks for it.

        Raises:
            BundleError: It was never changed since the config says so.
        """
        past = self._undoable()
        if not past:
            raise BundleError(
                f"alias {self.name!r} is what the config says", param=f"aliases.{self.name}"
            )
        last = past.pop()
        while past and past[-1].canary == last.canary:
            past.pop()
        before = past[-1] if past else None
        return self._next(
            at,
            cause="guard" if by_guard else "rollback",
            reason=reason,
            weights={} if before is None else before.weights,
            canary=None if before is None else before.canary,
            guard=None if before is None else before.guard,
            shadow=None if before is None else before.shadow,
        )

    def reset(self, at: datetime) -> Revision:
        """Return to what the config says, whatever was done since."""
        return self._next(at, cause="reset", weights={})

    def overruled(self, at: datetime) -> Revision | None:
        """Return the end of a rollout whose alias got another entry in the config, if it did."""
        tip = self.revisions[-1] if self.revisions else None
        if tip is None or tip.base == self.base or not (tip.weights or tip.shadow):
            return None
        return self._next(
            at, cause="config", reason="the config gives it other targets", weights={}
        )

    def _undoable(self) -> list[Revision]:
        """Return the changes that hold, oldest first, without those that were undone."""
        past: list[Revision] = []
        for revision in self.revisions:
            if revision.cause in ("set", "promote"):
                if past and past[-1].base != revision.base:
                    past.clear()
                past.append(revision)
            elif revision.cause in ("rollback", "guard"):
                last = past.pop() if past else None
                while past and last is not None and past[-1].canary == last.canary:
                    past.pop()
            else:
                past.clear()
        return past if self.tip is not None else []

    def _next(
        self,
        at: datetime,
        *,
        cause: str,
        weights: Mapping[str, float],
        reason: str = "",
        canary: str | None = None,
        guard: Guard | None = None,
        shadow: ShadowPlan | None = None,
    ) -> Revision:
        number = self.revisions[-1].number + 1 if self.revisions else 1
        return Revision.model_validate(
            {
                "alias": self.name,
                "number": number,
                "at": at,
                "cause": cause,
                "reason": reason,
                "base": dict(self.base),
                "weights": dict(weights),
                "canary": canary,
                "guard": guard,
                "shadow": shadow,
            }
        )


def effective(
    config: Mapping[str, Mapping[str, float]], tips: Mapping[str, Revision]
) -> Mapping[str, Mapping[str, float]]:
    """Return the weights by alias: the config's, and those of revisions that stand on them."""
    table = dict(config)
    for alias, tip in tips.items():
        if tip.base == config.get(alias, {}) and tip.targets():
            table[alias] = tip.targets()
    return table
