"""Calls by the time at which theirs is up."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headpond.scheduling.sequence import LiveCall

_SLACK = 64


class Deadlines:
    """A heap of deadlines that keeps nothing of a call that is over."""

    __slots__ = ("_calls", "_heap", "_next", "_numbers")

    def __init__(self) -> None:
        """Start empty."""
        self._heap: list[tuple[float, int]] = []
        self._calls: dict[int, LiveCall] = {}
        self._numbers: dict[LiveCall, int] = {}
        self._next = 0

    def __len__(self) -> int:
        """Return the number of calls that are watched."""
        return len(self._calls)

    @property
    def next_s(self) -> float | None:
        """When the next deadline may be; never later than it is."""
        return self._heap[0][0] if self._heap else None

    def add(self, call: LiveCall) -> None:
        """Watch a call."""
        self._next += 1
        self._calls[self._next] = call
        self._numbers[call] = self._next
        heappush(self._heap, (call.deadline_at_s, self._next))

    def forget(self, call: LiveCall) -> None:
        """Stop watching a call; no change when it is not watched."""
        number = self._numbers.pop(call, None)
        if number is None:
            return
        del self._calls[number]
        if len(self._heap) > _SLACK + 2 * len(self._calls):
            self._heap = [entry for entry in self._heap if entry[1] in self._calls]
            heapify(self._heap)

    def due(self, now_s: float) -> list[LiveCall]:
        """Take out the calls whose deadline is at or before `now_s`."""
        due: list[LiveCall] = []
        while self._heap and self._heap[0][0] <= now_s:
            call = self._calls.get(heappop(self._heap)[1])
            if call is not None:
                self.forget(call)
                due.append(call)
        return due
