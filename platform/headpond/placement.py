"""Where a call went: which replica took it, and which ones it should not go to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False, kw_only=True, slots=True)
class Placement:
    """Travels with a call to the place where its replica is chosen; the replica gets none of it.

    Attributes:
        avoid: Replicas that it goes to only where there is no other.
        replica: The replica that took it in; None until one has.
        give_up: Called when the call is waited for in vain.
        polls: How many polls there were since it was sent that found nobody had taken it in.
    """

    give_up: Callable[[], None] = lambda: None
    avoid: frozenset[str] = frozenset()
    replica: str | None = None
    polls: int = 0

    def __reduce__(self) -> tuple[type[Placement], tuple[()]]:
        """Cross to the replica as nothing but a placement."""
        return (Placement, ())
