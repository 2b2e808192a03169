"""`headpond up --detach`: a platform in a process of its own, which outlives the terminal."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from headpond.cli.running import Running, folder, running
from headpond.errors import NotReady

_POLL_S = 0.2
_MOST_TOLD_LINES = 20
_OF_PROCESS = "process-"
"""How the log of a process is called, before its number."""


def start_detached(words: Sequence[str]) -> tuple[Running, Path]:
    """Run `headpond` with these words on its own; returns its note once it is ready, and its log.

    Raises:
        NotReady: It has ended, with the last that it said.
    """
    folder().mkdir(parents=True, exist_ok=True)
    _forget_logs()
    started = folder() / f"{time.time_ns()}.log"
    command = [sys.executable, "-m", "headpond.cli", *words]
    with started.open("wb") as log:
        # Its words are our own.
        child = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    path = started.rename(folder() / f"{_OF_PROCESS}{child.pid}.log")
    try:
        return _ready(child, path), path
    except KeyboardInterrupt:
        child.terminate()
        raise


def _forget_logs() -> None:
    """Throw away the logs of what has ended."""
    for log in folder().glob(f"{_OF_PROCESS}*.log"):
        number = log.stem.removeprefix(_OF_PROCESS)
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            log.unlink(missing_ok=True)


def _ready(child: subprocess.Popen[bytes], log: Path) -> Running:
    while child.poll() is None:
        for note in running():
            if note.pid == child.pid and note.ready:
                return note
        time.sleep(_POLL_S)
    said = log.read_text(errors="replace").strip().splitlines()[-_MOST_TOLD_LINES:]
    log.unlink()
    raise NotReady("\n".join(said) or "it has ended without a word")
