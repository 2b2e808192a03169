"""Jobs through a storm of faults: the small form of `batch_chaos`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from batch_chaos import ORDER, storm
from pg_server import address_of, crash, postgres

RECORDS = 1_200


@pytest.mark.timeout(120)
async def test_each_record_is_answered_once_on_postgresql_whatever_fails(tmp_path: Path) -> None:
    with postgres(tmp_path) as server:
        outcome = await storm(
            tmp_path,
            address_of(server),
            records=RECORDS,
            faults=6,
            restart=partial(crash, server),
        )
    assert set(outcome.faults) == set(ORDER)
    assert len(outcome.computed) == RECORDS


@pytest.mark.timeout(120)
@pytest.mark.long
async def test_each_record_is_answered_once_on_sqlite_whatever_fails(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/jobs.db"
    outcome = await storm(tmp_path, database, records=RECORDS, faults=6)
    assert set(outcome.faults) == set(ORDER) - {"database"}
    assert len(outcome.computed) == RECORDS
