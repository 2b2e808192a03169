"""What every benchmark shares: processes and their cost, rounds, and the results file."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import signal
import statistics
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

RESULTS = Path(__file__).parent / "results"
TRIES = Path(__file__).parent.parent / ".bench/tries"


@dataclass(kw_only=True)
class Server:
    """A server under test: a process tree on a loopback port.

    It is ready when its `ready_path` answers 200, and its log holds `ready_text`, if there is one.
    """

    name: str
    command: Sequence[str]
    port: int
    ready_path: str
    env: Mapping[str, str] = field(default_factory=dict)
    start_s: float = 180.0
    ready_text: str = ""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until its ready path answers 200."""
        log = open(self.log, "wb")  # noqa: PTH123, SIM115
        self.process = subprocess.Popen(
            self.command, env={**os.environ, **self.env}, stdout=log, stderr=log
        )
        deadline = time.monotonic() + self.start_s
        while not self._ready():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"{self.name} did not start; see {log.name}")
            time.sleep(0.5)

    @property
    def log(self) -> str:
        """Where its output goes."""
        return f"/tmp/bench-{self.name}.log"  # noqa: S108

    def _ready(self) -> bool:
        if self.ready_text not in Path(self.log).read_text(errors="replace"):
            return False
        url = f"http://127.0.0.1:{self.port}{self.ready_path}"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def tree(self, without: Collection[str] = ()) -> list[psutil.Process]:
        """The process and everything below it, less those with one of these in their titles."""
        if self.process is None or not self.running:
            return []
        root = psutil.Process(self.process.pid)
        found = [root, *root.children(recursive=True)]
        return [process for process in found if not _is_titled(process, without)]

    def cpu_s(self, without: Collection[str] = ()) -> float:
        """CPU seconds of the whole tree so far."""
        total = 0.0
        for process in self.tree(without):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    def pss_bytes(self, without: Collection[str] = ()) -> int:
        """Proportional set size of the whole tree."""
        total = 0
        for process in self.tree(without):
            try:
                total += process.memory_full_info().pss
            except psutil.NoSuchProcess:
                continue
        return total

    def titled_pss_bytes(self, title: str) -> int:
        """Proportional set size of the processes in the tree that have this in their titles."""
        total = 0
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                if _is_titled(process, (title,)):
                    total += process.memory_full_info().pss
        return total

    def pause(self) -> None:
        """Stop the tree from running until `resume`, so that others have the machine."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the tree run again."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def stop(self) -> None:
        """Stop the tree and wait for it."""
        if self.process is None:
            return
        self.resume()
        tree = self.tree()
        if self.running:
            self.process.send_signal(signal.SIGINT)
        _, alive = psutil.wait_procs(tree, timeout=20)
        for process in alive:
            process.kill()
        self.process = None


def _is_titled(process: psutil.Process, parts: Collection[str]) -> bool:
    if not parts:
        return False
    try:
        title = " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
    return any(part in title for part in parts)


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile by rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(q * len(ranked)))]


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_before": os.getloadavg()[0],
    }


def versions(*packages: str) -> dict[str, str]:
    """Installed versions by package."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def write_results(subject: str, document: Mapping[str, object]) -> Path:
    """Write `results/<subject>.json`; of a subject that begins with `try`, below `.bench/`."""
    folder = TRIES if subject.startswith("try") else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{subject}.json"
    dated = {
        "subject": subject,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **document,
    }
    path.write_text(json.dumps(dated, indent=2) + "\n")
    return path
