"""PostgreSQL with pgvector as a sink: a real server, and none."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.sql import SQL, Composed, Identifier

from headpond.errors import BundleError, InvalidRequest, StoreUnavailable
from headpond.ray_env import free_port
from headpond.sink import Point, PointId, Sink, SinkSettings, open_sink
from headpond.sink_pgvector import PgvectorSink, table_of
from pg_server import address_of, postgres

UUID = "6fa459ea-ee8a-3ca4-894e-db77e160355e"
Row = tuple[object, ...]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield address_of(server)


@pytest.fixture
def sink(address: str) -> Sink:
    with psycopg.connect(address) as connection:
        connection.execute("DROP SCHEMA IF EXISTS headpond CASCADE")
    return open_sink(SinkSettings(url=f"pgvector+{address}"))


def point(point_id: PointId, *values: float, **payload: str) -> Point:
    return Point(point_id=point_id, vector=array("f", values), payload=payload)


def asked(address: str, query: Composed, *params: object) -> list[Row]:
    with psycopg.connect(address) as connection:
        return connection.execute(query, params).fetchall()


def stored(address: str, table: str) -> dict[object, Row]:
    query = SQL("SELECT id, embedding::text, payload FROM {}")
    rows = asked(address, query.format(Identifier("headpond", table)))
    return {point_id: tuple(rest) for point_id, *rest in rows}


async def test_points_are_there_under_their_names(sink: Sink, address: str) -> None:
    await sink.write("one", "docs", [point(2**64 - 1, 0.5, 0.1, text="a\"'ö"), point(UUID, 0, 1)])
    assert stored(address, "one.docs") == {
        str(2**64 - 1): ("[0.5,0.1]", {"text": "a\"'ö"}),
        UUID: ("[0,1]", {}),
    }
    await sink.close()


async def test_a_retry_replaces_and_adds_nothing(sink: Sink, address: str) -> None:
    for vector in ((1.0, 2.0), (1.0, 2.0), (3.0, 4.0)):
        await sink.write("one", "docs", [point(1, *vector, step=str(vector))])
    assert stored(address, "one.docs") == {"1": ("[3,4]", {"step": "(3.0, 4.0)"})}


async def test_the_nearest_are_found_by_an_index(sink: Sink, address: str) -> None:
    points = [point(at, *([float(at), 1.0] * 150)) for at in range(200)]
    await sink.write("one", "docs", points)
    near = SQL("SELECT id FROM {} ORDER BY embedding <=> %s::vector LIMIT 1")
    query = near.format(Identifier("headpond", "one.docs"))
    assert asked(address, query, str([7.0, 1.0] * 150)) == [("7",)]
    indexes = asked(address, SQL("SELECT indexdef FROM pg_indexes").format())
    assert any("hnsw" in str(row) for row in indexes)
    assert len(stored(address, "one.docs")) == 200


async def test_vectors_too_long_for_an_index_are_stored(sink: Sink, address: str) -> None:
    await sink.write("one", "docs", [point(1, *[0.5] * 2001)])
    assert list(stored(address, "one.docs")) == ["1"]


async def test_tenants_have_tables_of_their_own(sink: Sink, address: str) -> None:
    names = [("one", "docs"), ("two", "docs"), ('"; DROP--', "a"), ("t" * 60, "x"), ("t" * 60, "y")]
    for at, (tenant, collection) in enumerate(names):
        await sink.write(tenant, collection, [point(1, float(at))])
    tables = [table_of(*each) for each in names]
    assert len({*tables}) == len(names)
    assert max(map(len, tables)) <= 63
    assert [stored(address, table)["1"][0] for table in tables] == [
        f"[{at}]" for at in range(len(names))
    ]


async def test_calls_at_once_make_one_table_and_hold_up_none(sink: Sink, address: str) -> None:
    points = [point(at, float(at)) for at in range(50)]
    calls = [points if at % 2 else points[::-1] for at in range(12)]
    await asyncio.gather(*(sink.write("one", "docs", each) for each in calls))
    assert len(stored(address, "one.docs")) == 50


async def test_a_collection_of_another_length_is_named(sink: Sink, address: str) -> None:
    await sink.write("one", "docs", [point(1, 1.0, 2.0)])
    with pytest.raises(InvalidRequest, match="vectors of 2 values, not 3") as refused:
        await sink.write("one", "docs", [point(2, 1.0, 2.0, 3.0)])
    assert refused.value.param == "store.collection"
    assert list(stored(address, "one.docs")) == ["1"]


async def test_what_postgresql_cannot_hold_is_refused_and_nothing_is_stored(
    sink: Sink, address: str
) -> None:
    await sink.write("one", "docs", [point(0, 1.0)])
    with pytest.raises(InvalidRequest) as refused:
        await sink.write("one", "docs", [point(1, 1.0), point(2, 2.0, text="a\0b")])
    assert refused.value.param == "store"
    assert list(stored(address, "one.docs")) == ["0"]


async def test_a_store_that_is_down_or_lets_nobody_in_is_unavailable(address: str) -> None:
    down = open_sink(SinkSettings(url=f"pgvector+postgresql://x@127.0.0.1:{free_port()}/x"))
    for sink in (down, PgvectorSink(address.replace("postgres@", "nobody@"))):
        with pytest.raises(StoreUnavailable) as failed:
            await sink.write("one", "docs", [point(1, 1.0)])
        assert failed.value.retryable


def test_a_password_is_in_the_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PG_TEST_PASSWORD", raising=False)
    settings = SinkSettings(url="pgvector+postgresql://u@db/x", api_key_env="PG_TEST_PASSWORD")
    with pytest.raises(BundleError) as missing:
        open_sink(settings)
    assert missing.value.param == "sink.api_key_env"
    with pytest.raises(ValueError, match="url"):
        SinkSettings(url="pgvector+postgresql://u:secret@db/x")
