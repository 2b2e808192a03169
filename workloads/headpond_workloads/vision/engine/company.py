"""Who works at the same time: whether a forward may have all threads to itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Company:
    """Counts what is being decoded and computed, over all threads."""

    def __init__(self) -> None:
        """Start with nobody."""
        self._lock = Lock()
        self._members = 0

    @contextmanager
    def join(self) -> Iterator[bool]:
        """Take part; gives whether nobody else did at the start."""
        with self._lock:
            alone = not self._members
            self._members += 1
        try:
            yield alone
        finally:
            with self._lock:
                self._members -= 1
