"""A file of an operator's that is read again when it changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from headpond.config_file import SettingsError

log = structlog.get_logger(__name__)

Entry = TypeVar("Entry")

_LOOK_S = 1.0


class WatchedFile(Generic[Entry]):
    """What a file says, as it was when it last made sense.

    A file that is broken, or gone, changes nothing, but that it is logged and counted.

    Attributes:
        entries: What it says, by name.
        failures: How often a changed file could not be taken.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[Path], Mapping[str, Entry]],
        what: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the file.

        Args:
            path: The file.
            read: Reads it whole, and raises `SettingsError` where it can't.
            what: Is in it: the first word of what is logged.
            clock: Monotonic seconds.

        Raises:
            SettingsError: It cannot be read, or is wrong.
        """
        self._path = path
        self._read = read
        self._what = what
        self._broken, self._was_read = f"{what}_file_broken", f"{what}_file_read"
        self._clock = clock
        self._looked_s = clock()
        self._seen = _signature(path)
        self.entries = read(path)
        self.failures = 0

    def refresh(self) -> bool:
        """Look at the file, at most once a second; say whether it says something new.

        It is read here and now: whoever is asked must not go by a file that has been replaced
        for longer than that.
        """
        now_s = self._clock()
        if now_s - self._looked_s < _LOOK_S:
            return False
        self._looked_s = now_s
        # Before the reading: what changes meanwhile is another signature the next time.
        signature = _signature(self._path)
        if signature == self._seen:
            return False
        self._seen = signature
        try:
            self.entries = self._read(self._path)
        except SettingsError as error:
            self.failures += 1
            log.error(self._broken, problem=error.message, kept=len(self.entries))
            return False
        log.info(self._was_read, **{self._what: len(self.entries)})
        return True


def _signature(path: Path) -> tuple[int, ...] | None:
    """Return what tells one state of a file from another; None when there is no file.

    Secrets that are mounted are replaced by a link to another file, which it follows.
    """
    try:
        stat = os.stat(path)  # noqa: PTH116 - a Path would be made for each look
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
