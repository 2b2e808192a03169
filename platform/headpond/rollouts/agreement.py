"""How far the answers of two versions agree."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Agreement:
    """Counts of copied calls that add up over routers.

    Attributes:
        compared: Copies whose answers were compared.
        agreed: Those of them whose answers agree.
        failed: Copies that ended by an error, while the caller's call had ended well.
        dropped: Copies that were not made, or refused, for want of room.
        example: Where the latest that differs does.
    """

    compared: int = 0
    agreed: int = 0
    failed: int = 0
    dropped: int = 0
    example: str = ""

    def add(self, other: Agreement) -> None:
        """Add what another has counted."""
        self.compared += other.compared
        self.agreed += other.agreed
        self.failed += other.failed
        self.dropped += other.dropped
        self.example = other.example or self.example
