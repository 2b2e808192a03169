"""What a call came to, for who wants to know it whenever it is known."""

from __future__ import annotations

from collections.abc import Callable

from headpond.units import Work


class LastWord:
    """Tells one listener once; it may come before or after what it wants to know."""

    __slots__ = ("_told", "_work")

    def __init__(self) -> None:
        self._work: Work | None = None
        self._told: Callable[[Work], None] | None = None

    @property
    def awaited(self) -> bool:
        """Whether somebody listens and has not been told."""
        return self._told is not None

    def know(self, work: Work) -> None:
        """Tell what the call came to; the first word holds."""
        if self._work is None:
            self._work = work
            self._tell()

    def tell(self, told: Callable[[Work], None]) -> None:
        """Have `told` called once, at once if it is known already."""
        self._told = told
        self._tell()

    def _tell(self) -> None:
        if self._told is not None and self._work is not None:
            told, self._told = self._told, None
            told(self._work)
