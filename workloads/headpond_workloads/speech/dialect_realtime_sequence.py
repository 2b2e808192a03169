"""The appends of one session in the order of their numbers, as far as that can be waited for."""

from __future__ import annotations

from dataclasses import dataclass

from headpond.errors import InvalidRequest

MAX_WAIT_S = 1.0
"""How long later appends wait for one that is missing."""

MAX_AHEAD = 1024
"""A number so far beyond all others is a mistake: what lies between would be lost."""

MAX_HELD = 32
MAX_HELD_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Numbered:
    """An append whose turn it is."""

    sequence: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Gap:
    """Appends from `expected` up to before `found` did not come, and are not waited for."""

    expected: int
    found: int


class Sequencer:
    """Puts appends in order.

    Clients that number their appends may send some out of order, or twice; each counts
    once. Those of other clients count in the order in which they come.

    Attributes:
        expected: The number of the append whose turn is next.
        numbered: Whether the client numbers its appends, as the first one told.
    """

    def __init__(self) -> None:
        """Wait for the first append, whose number is 1."""
        self.expected = 1
        self.numbered = False
        self._highest = 0
        self._rewound = False  # what comes out of turn is of no use
        self._anchored = True  # else the next append is in turn, whatever its number
        self._held: dict[int, bytes] = {}
        self._held_bytes = 0
        self._since_s = 0.0

    def offer(self, sequence: int | None, content: bytes, now_s: float) -> list[Numbered | Gap]:
        """Take in an append, and return what may go on now.

        Raises:
            InvalidRequest: It has no number while those before had one, or the other way
                round; or its number is far beyond theirs.
        """
        numbered = sequence is not None
        if self._highest and numbered != self.numbered:
            was = "numbered" if self.numbered else "not numbered"
            raise InvalidRequest(f"appends before this one were {was}", param="sequence")
        if sequence is None:
            sequence = self.expected
        if sequence > self._highest + MAX_AHEAD:
            raise InvalidRequest(
                f"{sequence} is more than {MAX_AHEAD} beyond {self._highest}, the highest so far",
                param="sequence",
            )
        self.numbered = numbered
        self._highest = max(self._highest, sequence)
        if not self._anchored:
            self.expected = max(self.expected, sequence)
            self._anchored = True
        if sequence < self.expected or sequence in self._held:
            return []
        if sequence > self.expected:
            return self._hold(sequence, content, now_s)
        self._rewound = False
        self.expected += 1
        return [Numbered(sequence, content), *self._released(now_s)]

    def overdue(self, now_s: float) -> list[Numbered | Gap]:
        """Return what goes on without an append that was waited for too long."""
        if self._held and now_s - self._since_s > MAX_WAIT_S:
            return self._skip(now_s)
        return []

    def flush(self, now_s: float) -> list[Numbered | Gap]:
        """Return all that is held: what is missing is not waited for any longer."""
        released: list[Numbered | Gap] = []
        while self._held:
            released += self._skip(now_s)
        return released

    def rewind(self, expected: int) -> None:
        """Go back to an append that has to come again; later ones are of no use before it."""
        self.expected = expected
        self._rewound = True
        self._forget()

    def restart(self) -> None:
        """Forget what is held, and go on with whichever number comes next."""
        self._forget()
        self._rewound = self._anchored = False

    def _forget(self) -> None:
        self._held.clear()
        self._held_bytes = 0

    def _hold(self, sequence: int, content: bytes, now_s: float) -> list[Numbered | Gap]:
        if self._rewound:
            return []
        if not self._held:
            self._since_s = now_s
        self._held[sequence] = content
        self._held_bytes += len(content)
        released: list[Numbered | Gap] = []
        while len(self._held) > MAX_HELD or self._held_bytes > MAX_HELD_BYTES:
            released += self._skip(now_s)
        return released or self.overdue(now_s)

    def _skip(self, now_s: float) -> list[Numbered | Gap]:
        found = min(self._held)
        gap = Gap(expected=self.expected, found=found)
        self.expected = found
        return [gap, *self._released(now_s)]

    def _released(self, now_s: float) -> list[Numbered | Gap]:
        released: list[Numbered | Gap] = []
        while self.expected in self._held:
            content = self._held.pop(self.expected)
            self._held_bytes -= len(content)
            released.append(Numbered(self.expected, content))
            self.expected += 1
        if released:
            self._since_s = now_s
        return released
