"""A database of jobs, a mill over one, and a clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batches import Mill, mill_at
from headpond.jobs.database import Database
from headpond.jobs.roots import Roots
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


@pytest.fixture
def mill(tmp_path: Path, clock: FakeClock) -> Iterator[Mill]:
    """Return a mill whose jobs may read and write below the folder `lake` too."""
    (tmp_path / "lake/in/day").mkdir(parents=True)
    mill = mill_at(tmp_path, clock)
    mill.roots = Roots([f"file://{tmp_path}/lake"])
    yield mill
    mill.database.close()
