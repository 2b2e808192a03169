"""A file of API keys that is read again when it changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from headpond.api_key import ApiKey, read_keys
from headpond.config_file import SettingsError

log = structlog.get_logger(__name__)

_LOOK_S = 1.0


class KeyFile:
    """The keys of a file as it was when it last made sense.

    A file that is broken, or gone, changes nothing, but that it is logged and counted.

    Attributes:
        keys: By hash.
        failures: How often a changed file could not be taken.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        Args:
            path: A YAML list of keys.
            clock: Monotonic seconds.

        Raises:
            SettingsError: It cannot be read, or is wrong.
        """
        self._path = path
        self._clock = clock
        self._looked_s = clock()
        self._seen = _signature(path)
        self.keys: Mapping[str, ApiKey] = _by_hash(path)
        self.failures = 0

    def refresh(self) -> bool:
        """Look at the file, at most once a second; say whether there are new keys.

        It is read here and now: whoever is asked about a key must not go by a file that has
        been replaced for longer than that.
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
            self.keys = _by_hash(self._path)
        except SettingsError as error:
            self.failures += 1
            log.error("keys_file_broken", problem=error.message, kept=len(self.keys))
            return False
        log.info("keys_file_read", keys=len(self.keys))
        return True


def _by_hash(path: Path) -> Mapping[str, ApiKey]:
    return {key.key_sha256: key for key in read_keys(path)}


def _signature(path: Path) -> tuple[int, ...] | None:
    """Return what tells one state of a file from another; None when there is no file.

    Secrets that are mounted are replaced by a link to another file, which it follows.
    """
    try:
        stat = os.stat(path)  # noqa: PTH116 - a Path would be made for each look
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
