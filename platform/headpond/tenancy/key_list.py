"""A file of API keys as an operator edits it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from headpond.api_key import ID_DIGITS, ApiKey, read_keys
from headpond.config_file import SettingsError, read_yaml
from headpond.errors import NotFound

_HEAD = "# Keys by their hashes; `headpond key` writes this file anew, and keeps no comments.\n"
_NEW_MODE = 0o640


class KeyList:
    """The keys of a file, in order; entries are kept as they were written."""

    def __init__(self, path: Path) -> None:
        """Read the file; one that is not there is empty.

        Raises:
            SettingsError: It cannot be read, or is wrong.
        """
        self._path = path
        given = read_yaml(path) if path.exists() else None
        self._keys: Sequence[ApiKey] = () if given is None else read_keys(path)
        self._entries: list[object] = list(given) if isinstance(given, list) else []

    def __iter__(self) -> Iterator[ApiKey]:
        """Iterate over the keys."""
        return iter(self._keys)

    def add(self, entry: Mapping[str, object]) -> None:
        """Write the file with one more key.

        Raises:
            SettingsError: It cannot be written.
        """
        self._write([*self._entries, dict(entry)])

    def remove(self, identifier: str) -> ApiKey:
        """Write the file without a key, and return that.

        Args:
            identifier: As `key_id` gives it, or more of the key's hash.

        Raises:
            NotFound: No key has it, or several have.
            SettingsError: The file cannot be written.
        """
        whole = len(identifier) >= ID_DIGITS
        hashes = [key.key_sha256 for key in self._keys]
        found = [n for n, each in enumerate(hashes) if whole and each.startswith(identifier)]
        if len(found) != 1:
            raise NotFound(f"{len(found)} keys of {self._path} have the identifier {identifier}")
        self._write([*self._entries[: found[0]], *self._entries[found[0] + 1 :]])
        return self._keys[found[0]]

    def _write(self, entries: list[object]) -> None:
        """Replace the file at once: a server may read it at any time."""
        text = _HEAD + yaml.safe_dump(entries, sort_keys=False)
        try:
            mode = self._path.stat().st_mode if self._path.exists() else _NEW_MODE
            folder = self._path.resolve().parent
            handle, name = tempfile.mkstemp(dir=folder, prefix=f".{self._path.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as new:
                    new.write(text)
                Path(name).chmod(mode & 0o777)
                Path(name).replace(self._path.resolve())
            finally:
                with suppress(FileNotFoundError):
                    Path(name).unlink()
        except OSError as error:
            raise SettingsError(f"{self._path} cannot be written: {error}") from error
