"""What callers ask of files, batches and their lists in paths and queries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from starlette.requests import Request

from headpond.errors import InvalidRequest, NotFound

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Paging:
    """Which part of a list is asked for: what follows `after`, at most `limit`."""

    after: str | None
    limit: int

    @classmethod
    def read(cls, request: Request, *, default: int, most: int) -> Self:
        """Read `after` and `limit` of a query.

        Raises:
            InvalidRequest: One is not what it must be; names it.
        """
        after = request.query_params.get("after")
        if after is not None and not _ID.fullmatch(after):
            raise InvalidRequest(
                "`after` must be the identifier of one in the list.", param="after"
            )
        given = request.query_params.get("limit", str(default))
        if not re.fullmatch(r"[0-9]{1,6}", given) or not 1 <= int(given) <= most:
            raise InvalidRequest(f"`limit` must be a number from 1 to {most}.", param="limit")
        return cls(after, int(given))


def path_id(request: Request, name: str) -> str:
    """Return the identifier in a path.

    Raises:
        NotFound: It is no identifier of ours.
    """
    identifier: str = request.path_params[name]
    if not _ID.fullmatch(identifier):
        raise NotFound
    return identifier
