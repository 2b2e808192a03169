"""PostgreSQL with pgvector as a sink."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256

import psycopg
from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Identifier, Literal

from headpond.errors import InvalidRequest, StoreUnavailable
from headpond.sink import Point, SinkSettings, collection_of

_OPERATORS = {"cosine": "vector_cosine_ops", "dot": "vector_ip_ops", "euclid": "vector_l2_ops"}
_SCHEMA = "headpond"
_NAME_BYTES = 63
"""PostgreSQL cuts longer names, in silence."""
_DIGEST_DIGITS = 16
_MOST_INDEXED = 2_000
"""pgvector indexes no longer vectors; they are found by looking through all."""
_PART_VALUES = 8_192
"""Numbers in one statement: as text they hold the event loop for some milliseconds."""
_CONNECTIONS = 8

_MAKE = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {table}
    (id text PRIMARY KEY, embedding vector({size}) NOT NULL, payload jsonb NOT NULL);
"""
_INDEX = "CREATE INDEX ON {table} USING hnsw (embedding {operators})"
_LOCK = "SELECT pg_advisory_xact_lock(hashtext(%s))"
"""Who makes a collection keeps others from making it too; PostgreSQL lets both try, and fail."""
_SIZE = """
SELECT atttypmod FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attname = 'embedding' AND NOT attisdropped
"""
_UPSERT = """
INSERT INTO {table} (id, embedding, payload) VALUES (%s, %s::vector, %s::jsonb)
ON CONFLICT (id) DO UPDATE SET embedding = EXCLUDED.embedding, payload = EXCLUDED.payload
"""


def open_pgvector(settings: SinkSettings) -> PgvectorSink:
    """Return the PostgreSQL at an address; nothing is sent yet.

    Raises:
        BundleError: The environment variable of the password is not set.
    """
    return PgvectorSink(
        settings.url.removeprefix("pgvector+"),
        password=settings.key(),
        operators=_OPERATORS[settings.distance],
    )


class PgvectorSink:
    """Writes the points of a call in one transaction, over a connection of its own.

    Each tenant's collection is a table of the schema `headpond`: `<tenant>.<collection>`, or
    where that is longer than a name may be, its start and its digest.
    """

    def __init__(
        self, address: str, *, password: str | None = None, operators: str = "vector_cosine_ops"
    ) -> None:
        """Write to a database.

        Args:
            address: As libpq takes it, `postgresql://...`.
            password: Where the address needs one.
            operators: How indexes that are made here compare vectors.
        """
        self._address = address
        self._password = password
        self._operators = operators
        self._turns = asyncio.Semaphore(_CONNECTIONS)

    async def write(self, tenant: str, collection: str, points: Sequence[Point]) -> None:
        """Insert or replace points, all of them or none; see `Sink`.

        Raises:
            InvalidRequest: The collection holds vectors of another length, or PostgreSQL can't
                hold a payload.
            StoreUnavailable: PostgreSQL cannot be reached, or did not do it.
        """
        name = table_of(tenant, collection)
        try:
            async with self._turns, await self._connect() as connection:
                await self._prepare(connection, name, len(points[0].vector))
                upsert = SQL(_UPSERT).format(table=_table(name))
                async with connection.cursor() as cursor:
                    for rows in _parts(points):
                        await cursor.executemany(upsert, rows)
        except psycopg.DataError as error:
            raise InvalidRequest("the vector store refused the points", param="store") from error
        except psycopg.Error as error:
            raise StoreUnavailable from error

    async def close(self) -> None:
        """Do nothing: no connection outlives its call."""

    async def _connect(self) -> AsyncConnection[tuple[object, ...]]:
        return await AsyncConnection.connect(self._address, password=self._password)

    async def _prepare(
        self, connection: AsyncConnection[tuple[object, ...]], name: str, size: int
    ) -> None:
        """Make a table that is not there; check that it takes vectors of `size`."""
        held = await _size(connection, name)
        if held is None:
            await connection.execute(_LOCK, [_SCHEMA])
            held = await _size(connection, name)
        if held is None:
            held = size
            for statement in self._making(name, size):
                await connection.execute(statement)
        if held != size:
            raise InvalidRequest(
                f"the collection holds vectors of {held} values, not {size}",
                param="store.collection",
            )

    def _making(self, name: str, size: int) -> list[Composed]:
        table = _table(name)
        make = SQL(_MAKE).format(schema=Identifier(_SCHEMA), table=table, size=Literal(size))
        if size > _MOST_INDEXED:
            return [make]
        return [make, SQL(_INDEX).format(table=table, operators=Identifier(self._operators))]


def table_of(tenant: str, collection: str) -> str:
    """Return the name by which PostgreSQL knows a tenant's collection."""
    name = collection_of(tenant, collection)
    if len(name) <= _NAME_BYTES:
        return name
    digest = sha256(name.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{name[: _NAME_BYTES - _DIGEST_DIGITS - 1]}~{digest}"


def _table(name: str) -> Identifier:
    return Identifier(_SCHEMA, name)


async def _size(connection: AsyncConnection[tuple[object, ...]], name: str) -> int | None:
    """Return the length of a table's vectors; None when there is no table."""
    found = await connection.execute(_SIZE, [_table(name).as_string(connection)])
    row = await found.fetchone()
    return row[0] if row is not None and isinstance(row[0], int) else None


def _parts(points: Sequence[Point]) -> Iterator[list[tuple[str, str, str]]]:
    """Yield rows, a bounded number at a time; in one order, so that no two calls deadlock."""
    length = max(_PART_VALUES // len(points[0].vector), 1)
    ordered = sorted(points, key=lambda point: str(point.point_id))
    for at in range(0, len(ordered), length):
        yield [
            (
                str(point.point_id),
                "[" + ",".join(f"{value:.9g}" for value in point.vector) + "]",
                json.dumps(point.payload),
            )
            for point in ordered[at : at + length]
        ]
