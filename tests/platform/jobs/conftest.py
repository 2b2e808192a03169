"""A database of jobs, and a clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headpond.jobs.database import Database
from headpond.jobs.store import Jobs
from headpond.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000_000.0)


@pytest.fixture
def database(tmp_path: Path, clock: FakeClock) -> Iterator[Database]:
    database = Database.open(f"sqlite:///{tmp_path}/jobs.db", clock=clock)
    yield database
    database.close()


@pytest.fixture
def jobs(database: Database) -> Jobs:
    return Jobs(database)
