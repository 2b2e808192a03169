"""A stream that loses what it can't write: a full disk costs log lines, and no answers."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TextIO


class LossyStream(io.TextIOBase):
    """Writes to another stream as long as that takes it."""

    def __init__(self, to: TextIO) -> None:
        """Write to `to`."""
        self._to = to

    def write(self, text: str) -> int:
        """Write a text, or lose it; return its length either way."""
        with suppress(OSError):
            self._to.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand on what was written, as far as it is taken."""
        with suppress(OSError):
            self._to.flush()
