"""What an engine may not do, by its protocol and by its record."""

from __future__ import annotations

from headpond.engine import Progress
from headpond.errors import EngineFailed
from headpond.record import WorkloadRecord
from headpond.scheduling.sequence import Item


class Missteps:
    """Finds what is wrong with a slot's progress; only that item fails for it."""

    __slots__ = ("_axis", "_phases", "_units")

    def __init__(self, record: WorkloadRecord) -> None:
        """Keep what the record declares."""
        self._axis = record.batching.axis
        # The first phase of a record is validation, the last delivery: neither is an engine's.
        self._phases = frozenset(phase.name for phase in record.phases[1:-1])
        self._units = record.units_by_name.keys()

    def find(self, item: Item, progress: Progress[object]) -> EngineFailed | None:
        """Return what an engine did wrong, if anything, in a step that `item` has taken in."""
        if item.held > min(item.granted, item.extent):
            return EngineFailed(f"it went further along the {self._axis} than it may")
        if not 0 <= (progress.skipped or 0) <= progress.units:
            return EngineFailed(f"it skipped more {self._axis} than it passed")
        if progress.idle and item.inlet is None:
            return EngineFailed("it waits for input that will never come")
        if progress.phase is not None and progress.phase not in self._phases:
            return EngineFailed("it went to a phase that is not declared")
        if progress.finished is not None and not self._units >= progress.finished.keys():
            return EngineFailed("it came to work in a unit that is not declared")
        return None
