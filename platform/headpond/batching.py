"""How requests share an engine: along which axis, and with whom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Feed:
    """How the input of items comes that are fed while they run.

    Attributes:
        rate_per_s: Units along the axis that come in a second where input is live. Live
            items are admitted only while all of them can be kept up with.
        ahead: The most units of an item's input that wait; who sends more is held up.
    """

    rate_per_s: float
    ahead: int


@dataclass(frozen=True, kw_only=True)
class Continuous:
    """Requests join and leave between steps, and share each step with others.

    Attributes:
        axis: What a request holds more of with each step, e.g. `tokens`.
        extent: Dimensions whose sum is the most it ever holds along the axis.
        first_phase: The dimension that is worked off in chunks before the first output.
        cached: The dimension that says how much of the first phase will take no work, as
            far as planning can tell.
        compatible_by: Names of what must be equal to share a step, in the order of `Plan.key`.
        granule: The axis is held in multiples of this: a number or a bundle symbol.
        step_budget: Units along the axis that one step may work off, over all its slots.
        stretch: A step that carries items past their first phase takes at most about this
            many times what it takes without first phases of those who came later.
        feed: How input comes to items that get it while they run; None where none do. With
            it, a step takes an item on by up to a granule, not by one unit.
    """

    axis: str
    extent: tuple[str, ...]
    first_phase: str | None = None
    cached: str | None = None
    compatible_by: tuple[str, ...] = ()
    granule: int | str = 1
    step_budget: int = 512
    stretch: float = 2.0
    feed: Feed | None = None


@dataclass(frozen=True, kw_only=True)
class Formed:
    """Requests finish in one forward over a batch that is formed first.

    Attributes:
        axis: The dimension that fills a batch, e.g. `padded_tokens`.
        budget: Units along the axis in one batch, at most; an engine may want less.
        bucket_by: Names of what must be equal to share a batch, in the order of `Plan.key`.
    """

    axis: str
    budget: int
    bucket_by: tuple[str, ...] = ()
