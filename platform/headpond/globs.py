"""Names that an operator writes as globs."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase


def matches(name: str, globs: Sequence[str]) -> bool:
    """Return whether one of the globs stands for a name; `*` stands for all."""
    return any(glob in ("*", name) or fnmatchcase(name, glob) for glob in globs)
