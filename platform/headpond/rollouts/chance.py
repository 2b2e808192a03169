"""How likely it is that a difference between two versions is chance."""

from __future__ import annotations

from math import exp, lgamma, log, log1p

_NEGLIGIBLE = 1e-12


def chance_of_as_many(found: int, tried: int, share: float) -> float:
    """Return the probability that at least `found` of `tried` are hit, each with `share`."""
    if found <= 0 or share >= 1:
        return 1.0
    if share <= 0 or found > tried:
        return 0.0
    ways = lgamma(tried + 1) - lgamma(found + 1) - lgamma(tried - found + 1)
    term = exp(ways + found * log(share) + (tried - found) * log1p(-share))
    total = 0.0
    for count in range(found, tried + 1):
        total += term
        # Terms fall from the mean on; before it they are too large to be negligible.
        if term < total * _NEGLIGIBLE:
            break
        term *= (tried - count) / (count + 1) * share / (1 - share)
    return min(total, 1.0)
