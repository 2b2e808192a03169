"""Aliases: the names callers use, and how their traffic is split over targets.

A target is whatever serves a version: an application's name, or `name@version`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from headpond.errors import BundleError

_HISTORY = 32
"""Steps back that are kept; older ones are forgotten."""


@dataclass(frozen=True, kw_only=True)
class Alias:
    """A name with weighted targets, in a fixed order.

    Attributes:
        name: The name callers use.
        weights: Share of the traffic by target, relative to the sum. A target of weight 0
            is kept running without traffic.
    """

    name: str
    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        """Refuse weights that can't split anything.

        Raises:
            BundleError: Names the alias and the target.
        """
        if not self.name or not self.weights:
            raise BundleError(
                f"alias {self.name!r} needs a name and a target", param=f"aliases.{self.name}"
            )
        for target, weight in self.weights.items():
            if not target or not math.isfinite(weight) or weight < 0:
                raise BundleError(
                    f"alias {self.name!r} gives {target!r} the weight {weight}; "
                    "weights are finite and not negative",
                    param=f"aliases.{self.name}.{target}",
                )
        if not 0 < sum(self.weights.values()) < math.inf:
            raise BundleError(
                f"the weights of alias {self.name!r} must sum to more than 0",
                param=f"aliases.{self.name}",
            )

    @classmethod
    def parse(cls, text: str) -> Alias:
        """Read `chat=smollm2@1.2.0` or `chat=smollm2@1.2.0:90,smollm2@1.3.0:10`.

        Raises:
            BundleError: It does not read like that, or its weights split nothing.
        """
        name, _, listed = text.partition("=")
        weights: dict[str, float] = {}
        for entry in listed.split(","):
            target, colon, weight = entry.strip().partition(":")
            if not target or target in weights:
                raise BundleError(
                    f"alias {text!r} must read NAME=TARGET[:WEIGHT],..., each target once",
                    param="aliases",
                )
            weights[target] = _number(text, weight) if colon else 1.0
        return cls(name=name.strip(), weights=weights)

    def choose(self, token: str) -> str:
        """Return the target of a token: always the same one, over tokens in proportion.

        Raising the share of the last target moves tokens to it and no others around.
        """
        digest = hashlib.sha256(f"{self.name}\0{token}".encode()).digest()
        point = (int.from_bytes(digest[:8]) >> 11) / 2**53 * sum(self.weights.values())
        live = [(target, weight) for target, weight in self.weights.items() if weight > 0]
        bounds = accumulate(weight for _, weight in live)
        for (target, _), bound in zip(live, bounds, strict=True):
            if point < bound:
                return target
        return live[-1][0]  # the sum of the shares may round below the sum of the weights


def _number(text: str, weight: str) -> float:
    try:
        return float(weight)
    except ValueError:
        raise BundleError(
            f"alias {text!r} has the weight {weight!r}, which is no number", param="aliases"
        ) from None


class AliasTable:
    """Aliases by name, each with its history. One thread owns it."""

    def __init__(self, aliases: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Start with weights by alias and target.

        Raises:
            BundleError: An alias splits nothing.
        """
        table = {name: Alias(name=name, weights=dict(of)) for name, of in (aliases or {}).items()}
        self._history: dict[str, list[Alias]] = {name: [alias] for name, alias in table.items()}

    def targets(self) -> Mapping[str, tuple[str, ...]]:
        """Return every target by alias, those without traffic too."""
        return {name: tuple(history[-1].weights) for name, history in self._history.items()}

    def get(self, name: str) -> Alias | None:
        """Return an alias as it is now."""
        history = self._history.get(name)
        return history[-1] if history else None

    def choose(self, name: str, token: str) -> str | None:
        """Return the target of a token under an alias; None when there is no such alias."""
        alias = self.get(name)
        return None if alias is None else alias.choose(token)

    def put(self, alias: Alias) -> None:
        """Set an alias, e.g. with a canary's share; `rollback` takes it back."""
        history = self._history.setdefault(alias.name, [])
        history.append(alias)
        del history[:-_HISTORY]

    def promote(self, name: str, target: str) -> Alias:
        """Give all traffic to one target; the others are let go.

        Raises:
            BundleError: There is no such alias, or it has no such target.
        """
        alias = self._existing(name)
        if target not in alias.weights:
            raise BundleError(
                f"alias {name!r} has no target {target!r}; it has {', '.join(alias.weights)}",
                param=f"aliases.{name}",
            )
        promoted = Alias(name=name, weights={target: 1.0})
        self.put(promoted)
        return promoted

    def rollback(self, name: str) -> Alias:
        """Return to what an alias was before its last change.

        Raises:
            BundleError: There is no such alias, or nothing to return to.
        """
        self._existing(name)
        history = self._history[name]
        if len(history) < 2:
            raise BundleError(f"alias {name!r} was never changed", param=f"aliases.{name}")
        history.pop()
        return history[-1]

    def _existing(self, name: str) -> Alias:
        alias = self.get(name)
        if alias is None:
            raise BundleError(f"there is no alias {name!r}", param=f"aliases.{name}")
        return alias
