"""The log of all revisions, kept where every router and every command sees the same.

Revisions are only ever added, each under its own number and only when nobody has taken
that number: so two who change an alias at once never overwrite each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headpond.errors import HeadpondError
from headpond.rollouts.revision import Revision

_REVISIONS = "revision/"
_STARTED = "started/"
_KEPT = 64
"""Revisions of one alias; older ones are forgotten."""


class Conflict(HeadpondError):
    """The alias was changed by somebody else at the same time; look and try again."""

    status = 409
    code = "alias_conflict"


class Keys(Protocol):
    """A store of small values that outlives the processes that use it."""

    def add(self, key: str, value: bytes) -> bool:
        """Write a value where there is none; False when there is one."""
        ...

    def get(self, key: str) -> bytes | None:
        """Return a value."""
        ...

    def list(self, prefix: str) -> Sequence[str]:
        """Return all keys with a prefix."""
        ...

    def remove(self, key: str) -> None:
        """Forget a value."""
        ...


class RolloutLog:
    """Revisions by alias, and the applications that rollouts started."""

    def __init__(self, keys: Keys) -> None:
        """Read and write `keys`; nothing is kept here but what can't change."""
        self._keys = keys
        self._tips: dict[str, Revision] = {}

    def tips(self) -> Mapping[str, Revision]:
        """Return the last revision of every alias that was ever changed."""
        last: dict[str, int] = {}
        for key in self._keys.list(_REVISIONS):
            alias, number = _parts(key)
            last[alias] = max(last.get(alias, 0), number)
        tips = {}
        for alias, number in last.items():
            known = self._tips.get(alias)
            found = (
                known if known is not None and known.number == number else self._read(alias, number)
            )
            if found is not None:
                tips[alias] = found
        self._tips = tips
        return tips

    def revisions(self, alias: str) -> Sequence[Revision]:
        """Return the kept revisions of an alias, oldest first."""
        parts = [_parts(key) for key in self._keys.list(f"{_REVISIONS}{alias}/")]
        # An alias may have slashes, so that another one's name may begin like that.
        found = (self._read(alias, number) for name, number in sorted(parts) if name == alias)
        return [revision for revision in found if revision is not None]

    def append(self, revision: Revision) -> None:
        """Add the next revision of an alias.

        Raises:
            Conflict: Somebody else has added one of that number.
        """
        key = _key(revision.alias, revision.number)
        if not self._keys.add(key, revision.model_dump_json().encode()):
            raise Conflict
        self._keys.remove(_key(revision.alias, revision.number - _KEPT))

    def started(self) -> Sequence[str]:
        """Return the applications that rollouts started and did not take down again."""
        return [key.removeprefix(_STARTED) for key in self._keys.list(_STARTED)]

    def note_started(self, app: str) -> None:
        """Note that a rollout starts an application: no config file has it."""
        self._keys.add(_STARTED + app, b"")

    def note_removed(self, app: str) -> None:
        """Note that such an application is taken down."""
        self._keys.remove(_STARTED + app)

    def _read(self, alias: str, number: int) -> Revision | None:
        content = self._keys.get(_key(alias, number))
        return None if content is None else Revision.model_validate_json(content)


def _key(alias: str, number: int) -> str:
    return f"{_REVISIONS}{alias}/{number}"


def _parts(key: str) -> tuple[str, int]:
    alias, _, number = key.removeprefix(_REVISIONS).rpartition("/")
    return alias, int(number)
