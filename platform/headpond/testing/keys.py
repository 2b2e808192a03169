"""A store of revisions in this process."""

from __future__ import annotations

from collections.abc import Sequence


class MemoryKeys:
    """Keys that last as long as the process."""

    def __init__(self) -> None:
        """Start empty."""
        self._values: dict[str, bytes] = {}

    def add(self, key: str, value: bytes) -> bool:
        """Write a value where there is none; False when there is one."""
        if key in self._values:
            return False
        self._values[key] = value
        return True

    def get(self, key: str) -> bytes | None:
        """Return a value."""
        return self._values.get(key)

    def list(self, prefix: str) -> Sequence[str]:
        """Return all keys with a prefix."""
        return [key for key in self._values if key.startswith(prefix)]

    def remove(self, key: str) -> None:
        """Forget a value."""
        self._values.pop(key, None)
