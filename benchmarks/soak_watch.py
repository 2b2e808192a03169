"""What a platform's processes hold: memory over time, and what is left when all is over."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import psutil

from harness import Server, median

EVERY_S = 5.0
MIB = 2**20
REPLICA = "ray::ServeReplica:"
KINDS = {
    "ray::ServeController": "Serve's controller",
    "ray::ProxyActor": "Serve's proxy",
    "ray::HAProxyManager": "HAProxy's manager",
    "haproxy -": "HAProxy",
    "/gcs_server": "Ray's GCS",
    "/raylet/raylet": "raylet",
    "headpond.cli up": "headpond up",
}
OTHER = "Ray's helpers"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one process held: after how long as what it is, in bytes that no file backs."""

    age_s: float
    anonymous_bytes: int


@dataclass(frozen=True, kw_only=True)
class Trend:
    """How memory of one process went.

    Attributes:
        kind: What the process is.
        lived_s: How long it was watched.
        first_bytes: Median of the first fifth of the samples.
        last_bytes: Median of the last fifth.
        slope_bytes_h: Median of the slopes between samples, per hour.
    """

    kind: str
    lived_s: float
    first_bytes: float
    last_bytes: float
    slope_bytes_h: float

    @property
    def grown_bytes(self) -> float:
        """How much more it held at the end than at the begin."""
        return self.last_bytes - self.first_bytes


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What all processes hold besides memory, by kind of process or of thing."""

    processes: Mapping[str, int]
    files: Mapping[str, int]
    threads: Mapping[str, int]
    temporary: Sequence[str]
    objects: int


@dataclass(kw_only=True)
class Memory:
    """Samples of every process of a tree, taken by a thread of its own."""

    server: Server
    samples: dict[int, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    kinds: dict[int, str] = field(default_factory=dict)
    since_s: dict[int, float] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._look)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._over.set()
        self._thread.join()

    def trends(self, alive: Sequence[int], young_s: float) -> list[Trend]:
        """Return how memory of processes went once they were `young_s` old."""
        found = []
        for pid in alive:
            grown = [each for each in self.samples.get(pid, []) if each.age_s >= young_s]
            if len(grown) < 5:
                continue
            fifth = len(grown) // 5
            found.append(
                Trend(
                    kind=self.kinds[pid],
                    lived_s=grown[-1].age_s - grown[0].age_s,
                    first_bytes=median([each.anonymous_bytes for each in grown[:fifth]]),
                    last_bytes=median([each.anonymous_bytes for each in grown[-fifth:]]),
                    slope_bytes_h=3600 * _slope(grown),
                )
            )
        return sorted(found, key=lambda each: each.kind)

    def _look(self) -> None:
        while not self._over.wait(EVERY_S):
            for process, kind in titled(self.server.tree()):
                with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                    self._note(process.pid, kind)

    def _note(self, pid: int, kind: str) -> None:
        """Note what a process holds; one of Ray's idle workers may have become a replica."""
        now_s = time.monotonic()
        if self.kinds.get(pid) != kind:
            self.kinds[pid], self.since_s[pid] = kind, now_s
            self.samples[pid].clear()
        age_s = now_s - self.since_s[pid]
        self.samples[pid].append(Sample(age_s=age_s, anonymous_bytes=_anonymous_bytes(pid)))


def titled(processes: Sequence[psutil.Process]) -> Iterator[tuple[psutil.Process, str]]:
    """Yield processes with what they are; a replica is its application's."""
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            title = " ".join(process.cmdline())
            if title.startswith(REPLICA):
                yield process, title.removeprefix(REPLICA).partition(":")[0]
                continue
            yield process, next((KINDS[part] for part in KINDS if part in title), OTHER)


def _anonymous_bytes(pid: int) -> int:
    """Return what a process holds that is in no file: pages of files come and go."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Anonymous:\s+(\d+) kB$", text, re.M)
    if found is None:
        raise ProcessLookupError(pid)
    return int(found[1]) * 1024


def _slope(samples: Sequence[Sample]) -> float:
    """Return the median of the slopes between samples, in bytes per second (Theil and Sen)."""
    thinned = samples[:: 1 + len(samples) // 150]
    return median(
        [
            (later.anonymous_bytes - sooner.anonymous_bytes) / (later.age_s - sooner.age_s)
            for sooner, later in combinations(thinned, 2)
        ]
    )


def holding(server: Server, folder: Path, address: str) -> Holding:
    """Return what a platform holds now.

    Args:
        server: The platform.
        folder: Its folder for temporary files, in which Ray's logs and sockets are not counted.
        address: Where its Ray is.
    """
    processes: Counter[str] = Counter()
    files: Counter[str] = Counter()
    threads: Counter[str] = Counter()
    for process, kind in titled(server.tree()):
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE:
                processes["zombies"] += 1
                continue
            processes[kind] += 1
            files[kind] += process.num_fds()
            threads[kind] += process.num_threads()
    temporary = [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder).parts[0] != "ray"
    ]
    return Holding(
        processes=processes,
        files=files,
        threads=threads,
        temporary=sorted(temporary),
        objects=_objects(address),
    )


def _objects(address: str) -> int:
    """Return how many objects Ray's store holds."""
    program = (
        "from ray._private.internal_api import memory_summary;"
        f"print(memory_summary({address!r}, stats_only=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RAY_AUTH_MODE": "token"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = re.search(r"Plasma memory usage .*?, (\d+) objects", done.stdout)
    if found is None:
        raise RuntimeError(done.stdout + done.stderr)
    return int(found[1])
