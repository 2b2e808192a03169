"""The timeline of one call: every phase once, in order, summing to the total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Timeline:
    """Seconds spent in each phase. Phases that are passed over took no time.

    Entering a phase ends the one before at the same instant, so the durations always sum
    to the time between the start and the reading.
    """

    __slots__ = ("_at", "_entered", "_phases", "_spent")

    def __init__(self, phases: Sequence[str], now_s: float) -> None:
        """Start in the first of `phases` at `now_s` on a monotonic clock."""
        self._phases = tuple(phases)
        self._spent = [0.0] * len(self._phases)
        self._at = 0
        self._entered = now_s

    @property
    def phase(self) -> str:
        """The phase the call is in."""
        return self._phases[self._at]

    def enter(self, phase: str, now_s: float) -> None:
        """Go on to `phase`; staying in the current one is no change.

        Raises:
            ValueError: The phase is not declared, or lies behind.
        """
        target = self._phases.index(phase)
        if target < self._at:
            raise ValueError(f"phase {phase!r} lies before {self.phase!r}")
        self._spent[self._at] += now_s - self._entered
        self._at, self._entered = target, now_s

    def durations_s(self, now_s: float) -> Mapping[str, float]:
        """Return the seconds of every phase, the current one counted until `now_s`."""
        spent = list(self._spent)
        spent[self._at] += now_s - self._entered
        return dict(zip(self._phases, spent, strict=True))

    def visited_s(self, now_s: float) -> Mapping[str, float]:
        """Return the seconds of the phases up to the current one, for what ends there."""
        return dict(list(self.durations_s(now_s).items())[: self._at + 1])
