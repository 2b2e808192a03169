"""The database of jobs: transactions in threads, repeated when the connection breaks."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import stamina
from sqlalchemy import Connection, Engine, create_engine, event, func, make_url, select
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from headpond.jobs.errors import JobsUnavailable
from headpond.jobs.migrating import migrate

Result = TypeVar("Result")

_BUSY_S = 20.0
"""So long SQLite waits for another process's transaction."""


class Database:
    """PostgreSQL, or SQLite in a file, behind one way of running a transaction."""

    def __init__(
        self, engine: Engine, *, patience_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        """Use an engine whose tables are there; see `open`."""
        self._engine = engine
        self._patience_s = patience_s
        self._clock = clock
        self.skips_locked = engine.dialect.name == "postgresql"

    @classmethod
    def open(
        cls, url: str, *, patience_s: float = 5.0, clock: Callable[[], float] = time.time
    ) -> Self:
        """Connect, and bring the tables up to date.

        Args:
            url: `sqlite:///path` or `postgresql://user@host/database`.
            patience_s: So long a transaction is repeated while the database is away.
            clock: Unix time for SQLite; PostgreSQL's own clock is the time elsewhere.

        Raises:
            JobsTooNew: A newer version has changed the tables.
            JobsUnavailable: The database did not answer in time.
        """
        engine = _engine(url)
        database = cls(engine, patience_s=patience_s, clock=clock)
        database._migrate()
        return database

    async def write(self, transaction: Callable[[Connection, float], Result]) -> Result:
        """Run a transaction in a thread; it is given the connection and the time.

        It is run again when the connection breaks, maybe after it was committed: it must
        leave the same when run twice.

        Raises:
            JobsUnavailable: The database did not answer in time.
        """
        return await self._patiently(transaction, "IMMEDIATE")

    async def read(self, transaction: Callable[[Connection, float], Result]) -> Result:
        """Run a transaction that only reads in a thread; see `write`."""
        return await self._patiently(transaction, "DEFERRED")

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def _once(self, transaction: Callable[[Connection, float], Result], begin: str) -> Result:
        with (
            self._engine.connect().execution_options(begin=begin) as connection,
            connection.begin(),
        ):
            return transaction(connection, self._now(connection))

    def _now(self, connection: Connection) -> float:
        if not self.skips_locked:
            return self._clock()
        return float(
            connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one()
        )

    async def _patiently(
        self, transaction: Callable[[Connection, float], Result], begin: str
    ) -> Result:
        try:
            async for attempt in _attempts(timeout=self._patience_s):
                with attempt:
                    return await asyncio.to_thread(self._once, transaction, begin)
        except DBAPIError as error:
            raise _unavailable(error) from error
        raise JobsUnavailable

    def _migrate(self) -> None:
        try:
            for attempt in _attempts(timeout=self._patience_s):
                with attempt:
                    migrate(self._engine)
        except DBAPIError as error:
            raise _unavailable(error) from error


def _unavailable(error: DBAPIError) -> Exception:
    return JobsUnavailable(retry_after_s=2.0) if _may_pass(error) else error


def _may_pass(error: Exception) -> bool:
    """Say whether an error is about the database's health, not about what was asked of it."""
    if isinstance(error, OperationalError | InterfaceError):
        return True
    return isinstance(error, DBAPIError) and error.connection_invalidated


_attempts = partial(
    stamina.retry_context,
    on=_may_pass,
    attempts=None,
    wait_initial=0.05,
    wait_max=2.0,
    wait_jitter=0.1,
)


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return create_engine(
            parsed.set(drivername="postgresql+psycopg"), pool_size=4, max_overflow=8
        )
    if parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(parsed, connect_args={"timeout": _BUSY_S})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # SQLAlchemy's `begin` event says when one begins
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # One that reads first and writes then would fail when another wrote between: so writers
    # say at once that they will.
    begin = connection.get_execution_options().get("begin", "IMMEDIATE")
    connection.exec_driver_sql(f"BEGIN {begin}")
