"""The inlet of a fed item: input on its way to the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from headpond.errors import InvalidRequest


@dataclass(slots=True, eq=False, kw_only=True)
class Inlet:
    """Keeps what came for an item until the step that takes it.

    Attributes:
        most: Units along the axis that may come in all.
        fed: Units that came so far.
        pending: What the engine has not been given yet, in order.
    """

    most: int
    fed: int = 0
    pending: list[object] = field(default_factory=list)

    def put(self, payload: object, units: int) -> None:
        """Take in input.

        Raises:
            InvalidRequest: More came than the item was admitted for.
        """
        if self.fed + units > self.most:
            raise InvalidRequest(f"this is more input than the {self.most} units of one call")
        self.fed += units
        self.pending.append(payload)

    def take(self) -> list[object]:
        """Hand out what came since the last time."""
        pending, self.pending = self.pending, []
        return pending
