"""Aliases: the names callers use, and how their traffic is split over targets.

A target is whatever serves a version: an application's name, or `name@version`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from headpond.errors import BundleError


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


class AliasTable:
    """What each name stands for; it never changes."""

    def __init__(self, aliases: Mapping[str, Mapping[str, float]] | None = None) -> None:
        """Keep weights by alias and target.

        Raises:
            BundleError: An alias splits nothing.
        """
        self._aliases = {
            name: Alias(name=name, weights=dict(weights))
            for name, weights in (aliases or {}).items()
        }

    def targets(self) -> Mapping[str, tuple[str, ...]]:
        """Return every target by alias, those without traffic too."""
        return {name: tuple(alias.weights) for name, alias in self._aliases.items()}

    def sharing(self, name: str) -> tuple[str, ...]:
        """Return the targets of an alias that get traffic."""
        alias = self._aliases.get(name)
        weights = {} if alias is None else alias.weights
        return tuple(target for target, weight in weights.items() if weight > 0)

    def choose(
        self, name: str, token: str, ready: Callable[[str], bool] = lambda _: True
    ) -> str | None:
        """Return the target of a token under an alias; None when there is no such alias.

        One that is not ready is passed over while another is, and its tokens only: those of
        the others stay where they are.
        """
        alias = self._aliases.get(name)
        if alias is None:
            return None
        chosen = alias.choose(token)
        if ready(chosen):
            return chosen
        left = {target: alias.weights[target] for target in self.sharing(name) if ready(target)}
        return Alias(name=name, weights=left).choose(token) if left else chosen
