"""A file of API keys that is read again when it changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from headpond.api_key import ApiKey, read_keys
from headpond.tenancy.watched_file import WatchedFile


class KeyFile(WatchedFile[ApiKey]):
    """The keys of a file, by hash."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        Args:
            path: A YAML list of keys.
            clock: Monotonic seconds.

        Raises:
            SettingsError: It cannot be read, or is wrong.
        """
        super().__init__(path, _by_hash, "keys", clock)


def _by_hash(path: Path) -> Mapping[str, ApiKey]:
    return {key.key_sha256: key for key in read_keys(path)}
