"""A database that may be away when it is first wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from headpond.jobs.database import Database
from headpond.jobs.errors import JobsUnavailable


class Opening:
    """A database that is opened when it is first needed, and again after it could not be."""

    def __init__(self, opened: Callable[[], Database]) -> None:
        """Open nothing yet; `opened` does, and blocks meanwhile."""
        self._opened = opened
        self._opening: asyncio.Task[Database] | None = None

    async def database(self) -> Database:
        """Return the database.

        Raises:
            JobsUnavailable: It does not answer.
        """
        opening = self._opening
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = self._opening = asyncio.create_task(asyncio.to_thread(self._opened))
        # Whoever comes meanwhile waits for the same attempt, and may go away alone.
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Close the connections."""
        opening, self._opening = self._opening, None
        if opening is not None:
            with suppress(JobsUnavailable):
                (await opening).close()
