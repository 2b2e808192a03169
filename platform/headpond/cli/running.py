"""What `headpond up` runs on this machine: a note each, for `headpond down`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import platformdirs
import psutil


@dataclass(frozen=True, kw_only=True)
class Running:
    """A platform that was started here.

    Attributes:
        pid: The process of `headpond up`.
        started_s: When that began, Unix time: another process may have its number by now.
        base_url: Where it listens.
        ready: Whether everything was ready already.
    """

    pid: int
    started_s: float
    base_url: str
    ready: bool = False

    def process(self) -> psutil.Process | None:
        """Return the process; None when it has ended."""
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            if process.create_time() == self.started_s:
                return process
        return None


@contextmanager
def noted(base_url: str) -> Iterator[Callable[[], None]]:
    """Leave a note that this process runs a platform, for as long as it does.

    Yields what to call once everything is ready.
    """
    process = psutil.Process()
    note = Running(pid=os.getpid(), started_s=process.create_time(), base_url=base_url)
    path = folder() / f"{note.pid}.json"

    def write(state: Running) -> None:
        # Renamed to its place, so that nobody reads half of it.
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(state)))
        fresh.replace(path)

    path.parent.mkdir(parents=True, exist_ok=True)
    write(note)
    try:
        yield lambda: write(replace(note, ready=True))
    finally:
        path.unlink(missing_ok=True)


def running() -> list[Running]:
    """Return the platforms that run here, of this user; notes of others are thrown away."""
    found = []
    for path in sorted(folder().glob("*.json")):
        with suppress(OSError, ValueError, TypeError):
            note = Running(**json.loads(path.read_text()))
            if note.process() is not None:
                found.append(note)
                continue
        path.unlink(missing_ok=True)
    return found


def folder() -> Path:
    """Return where the notes lie."""
    return platformdirs.user_state_path("headpond") / "running"
