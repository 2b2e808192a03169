"""Refusing at the very edge, when the event loop can't even refuse in time what comes.

To refuse with a reason costs a tenth of a request or more: its headers are read, its key is looked
up, it is counted and logged. When more comes than that can be done for, everything waits for the
event loop: refusals, answers, and the probes of whoever looks whether it lives. So when the loop is
late for a while, a part of the requests is refused for next to nothing, of those who send most.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable

TICK_S = 0.02
"""So often it is seen how late the loop is; under load, once in each of its rounds."""

LATE_S = 0.03
"""The loop may be so late; a request waits for it for two of its rounds at most."""

ROUNDS = 3
"""Only what holds for so many ticks is load, and not one long pause."""

GAIN = 0.5
"""The part that is refused changes by so much a second, and `LATE_S`, that the loop is late."""

MOST = 0.98
"""Some are let through in any case, to see whether it is over."""

MEMORY_S = 1.0
"""What came is forgotten by and by in so many seconds."""


class Shedding:
    """Which part of what comes is refused, and whose.

    An integral controller holds the loop's lateness at `LATE_S`. Everybody may send as much as
    others, so what is refused is what some send beyond that: the least equal bound is found that
    leaves as much as there is to be left (max-min fairness).
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        """Start with nothing refused.

        Args:
            chance: Uniform over [0, 1).
        """
        self._chance = chance
        self._late_s: deque[float] = deque([0.0] * ROUNDS, ROUNDS)
        self._came: dict[bytes, float] = {}
        self._bound = math.inf
        self.part = 0.0

    def refuses(self, sender: bytes) -> bool:
        """Count a request, and say whether it is refused.

        Args:
            sender: What tells senders apart: their credentials, as they are.
        """
        came = self._came[sender] = self._came.get(sender, 0.0) + 1.0
        return came > self._bound and self._chance() * came >= self._bound

    def observe(self, late_s: float, passed_s: float) -> None:
        """Learn how late the loop was after `passed_s` seconds, and decide anew."""
        self._late_s.append(late_s)
        excess = min(min(self._late_s) / LATE_S, 10.0) - 1.0
        self.part = min(max(self.part + GAIN * passed_s * excess, 0.0), MOST)
        fading = math.exp(-passed_s / MEMORY_S)
        self._came = {
            sender: came * fading for sender, came in self._came.items() if came * fading > 0.1
        }
        self._bound = _bound(sorted(self._came.values()), 1.0 - self.part)

    @property
    def idle(self) -> bool:
        """Whether nothing came lately, and nothing is refused."""
        return not self._came and not self.part


def _bound(came: list[float], part: float) -> float:
    """Return what the sums may be cut to so that this part of their total is left.

    Args:
        came: In ascending order.
        part: Of 1; all of it means no bound.
    """
    if part >= 1.0:
        return math.inf
    left = part * math.fsum(came)
    for index, amount in enumerate(came):
        equal = left / (len(came) - index)
        if amount >= equal:
            return equal
        left -= amount
    return math.inf


class LateLoop:
    """Tells a `Shedding` how late this process's event loop is, as long as requests come."""

    def __init__(self, shedding: Shedding) -> None:
        """Watch nothing yet."""
        self._shedding = shedding
        self._watching = False

    def watch(self) -> None:
        """Watch from now on, unless it does; call it on the loop."""
        if not self._watching:
            self._watching = True
            loop = asyncio.get_running_loop()
            self._next(loop, loop.time())

    def _next(self, loop: asyncio.AbstractEventLoop, now_s: float) -> None:
        loop.call_at(now_s + TICK_S, self._tick, loop, now_s)

    def _tick(self, loop: asyncio.AbstractEventLoop, before_s: float) -> None:
        now_s = loop.time()
        passed_s = now_s - before_s
        self._shedding.observe(passed_s - TICK_S, passed_s)
        if self._shedding.idle:
            self._watching = False
        else:
            self._next(loop, now_s)
