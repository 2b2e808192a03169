"""The stores of jobs as HTTP reaches them: opened when they are first needed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from headpond.jobs.database import Database
from headpond.jobs.errors import JobsUnavailable
from headpond.jobs.settings import JobStore
from headpond.jobs.store import Jobs


class JobsAccess:
    """A database and an object store that may be away: what is served online needs neither."""

    def __init__(self, store: JobStore, *, patience_s: float = 5.0) -> None:
        """Keep the addresses; the database is not opened yet.

        Args:
            store: Where jobs are.
            patience_s: So long a request waits for a database that is away.
        """
        self.store = store
        self._patience_s = patience_s
        self.objects = store.open_objects()
        self.roots = store.open_roots()
        self._opening: asyncio.Task[Database] | None = None

    async def jobs(self) -> Jobs:
        """Return the store of jobs.

        Raises:
            JobsUnavailable: The database does not answer.
        """
        opening = self._opening
        if opening is None or (opening.done() and opening.exception() is not None):
            opened = partial(self.store.open_database, patience_s=self._patience_s)
            opening = asyncio.create_task(asyncio.to_thread(opened))
            self._opening = opening
        # Whoever comes meanwhile waits for the same attempt, and may go away alone.
        return Jobs(await asyncio.shield(opening))

    async def close(self) -> None:
        """Close the connections."""
        opening, self._opening = self._opening, None
        if opening is not None:
            with suppress(JobsUnavailable):
                (await opening).close()
