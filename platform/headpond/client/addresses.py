"""Addresses of single things and of parts of lists."""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode

_PARAMETER = re.compile(r"\{\w+\}")


def at(path: str, identifier: str) -> str:
    """Return a path with its one parameter filled in."""
    return _PARAMETER.sub(quote(identifier, safe=""), path)


def queried(path: str, **parameters: str | int | None) -> str:
    """Return a path with those parameters that are not None as its query."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
