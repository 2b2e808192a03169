"""What every benchmark shares: processes and their cost, rounds, and the results file."""

from __future__ import annotations

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

RESULTS = Path(__file__).parent / "results"


@dataclass(kw_only=True)
class Server:
    """A server under test: a process tree on a loopback port."""

    name: str
    command: Sequence[str]
    port: int
    ready_path: str
    env: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self, timeout_s: float = 180.0) -> None:
        """Start the process and wait until its ready path answers 200."""
        log = open(f"/tmp/bench-{self.name}.log", "wb")  # noqa: PTH123, S108, SIM115
        self.process = subprocess.Popen(
            self.command, env={**os.environ, **self.env}, stdout=log, stderr=log
        )
        deadline = time.monotonic() + timeout_s
        while not self._ready():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"{self.name} did not start; see {log.name}")
            time.sleep(0.5)

    def _ready(self) -> bool:
        url = f"http://127.0.0.1:{self.port}{self.ready_path}"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def tree(self) -> list[psutil.Process]:
        """The process and everything below it."""
        if self.process is None:
            return []
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def cpu_s(self) -> float:
        """CPU seconds of the whole tree so far."""
        total = 0.0
        for process in self.tree():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    def pss_bytes(self) -> int:
        """Proportional set size of the whole tree."""
        total = 0
        for process in self.tree():
            try:
                total += process.memory_full_info().pss
            except psutil.NoSuchProcess:
                continue
        return total

    def stop(self) -> None:
        """Stop the tree and wait for it."""
        if self.process is None:
            return
        tree = self.tree()
        self.process.send_signal(signal.SIGINT)
        _, alive = psutil.wait_procs(tree, timeout=20)
        for process in alive:
            process.kill()
        self.process = None


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
    """Write `results/<subject>.json`."""
    path = RESULTS / f"{subject}.json"
    dated = {
        "subject": subject,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **document,
    }
    path.write_text(json.dumps(dated, indent=2) + "\n")
    return path
