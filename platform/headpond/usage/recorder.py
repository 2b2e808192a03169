"""Writes a process's ledger to the database, beside its work."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress

import structlog
from sqlalchemy.exc import DBAPIError

from headpond.jobs.database import Database
from headpond.jobs.errors import JobsUnavailable
from headpond.jobs.settings import JobStore
from headpond.settings import UsageSettings
from headpond.usage.ledger import HOUR_S, Ledger
from headpond.usage.table import DAY_S, forget, write

log = structlog.get_logger(__name__)

_WRITER_BYTES = 8


class Recorder:
    """Keeps writing until it is stopped; while the database is away, totals wait in memory."""

    def __init__(self, settings: UsageSettings, ledger: Ledger) -> None:
        """Connect to nothing yet.

        Args:
            settings: Where to write, how often, and how long that is kept.
            ledger: What to write.
        """
        self._settings = settings
        self._ledger = ledger
        self._tidy_from_s = time.monotonic()
        self._writer = os.urandom(_WRITER_BYTES).hex()
        self._database: Database | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to write, on the running event loop; a database that is away is waited for.

        Raises:
            sqlalchemy.exc.ArgumentError: The URL is none.
            ModuleNotFoundError: Its driver is not installed.
        """
        with suppress(JobsUnavailable):
            await self._opened()
        self._task = asyncio.create_task(self._keep_writing())

    async def stop(self) -> None:
        """Write what is left, if the database answers."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.write()
        if self._database is not None:
            self._database.close()

    async def write(self) -> None:
        """Write what has changed; what can't be written now is kept."""
        changes = self._ledger.changes()
        if not changes:
            return
        try:
            database = await self._opened()
            await database.write(lambda connection, _: write(connection, self._writer, changes))
        except (JobsUnavailable, DBAPIError):
            log.warning("usage_not_written", waiting=len(changes))
        else:
            self._ledger.written(changes)

    async def tidy(self) -> None:
        """Delete what is too old to be kept, once an hour; all processes do."""
        now_s, keep_days = time.monotonic(), self._settings.keep_days
        if keep_days is None or now_s < self._tidy_from_s:
            return
        kept_s = keep_days * DAY_S
        try:
            database = await self._opened()
            # By the database's clock, where it has one: one machine's may be wrong.
            rows = await database.write(lambda connection, at_s: forget(connection, at_s - kept_s))
        except (JobsUnavailable, DBAPIError):
            log.warning("usage_not_deleted")
            return
        self._tidy_from_s = now_s + HOUR_S
        if rows:
            log.info("usage_deleted", rows=rows)

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(self._settings.write_s)
            await self.write()
            await self.tidy()

    async def _opened(self) -> Database:
        if self._database is None:
            store = JobStore(database=self._settings.url)
            self._database = await asyncio.to_thread(store.open_database)
        return self._database
