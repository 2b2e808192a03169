"""The stores of jobs as HTTP reaches them: opened when they are first needed."""

from __future__ import annotations

from functools import partial

from headpond.jobs.opening import Opening
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
        self.objects = store.open_objects()
        self.roots = store.open_roots()
        self._opening = Opening(partial(store.open_database, patience_s=patience_s))

    async def jobs(self) -> Jobs:
        """Return the store of jobs.

        Raises:
            JobsUnavailable: The database does not answer.
        """
        return Jobs(await self._opening.database())

    async def close(self) -> None:
        """Close the connections."""
        await self._opening.close()
