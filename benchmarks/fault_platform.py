"""The platform that faults strike, and its processes by name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from harness import Server
from headpond.ray_env import free_port
from headpond.testing.install import declare_workload
from headpond.testing.stumbling import write_stumbling_bundle

if TYPE_CHECKING:
    from fault_list import Fault

ROOT = Path(__file__).parent.parent
TWINS, EMBEDDING, WORDS = "twins", "all-minilm-l6-v2", "streaming-words"
REPLICA, FORMED_REPLICA = "ray::ServeReplica:twins:", f"ray::ServeReplica:{EMBEDDING}:"
ROUTER, HAPROXY = "ray::ServeReplica:router:", "haproxy -dS"
PROXY, MANAGER, CONTROLLER = "ray::ProxyActor", "ray::HAProxyManager", "ray::ServeController"
GCS = "gcs_server"
EXPECTED = {
    REPLICA: 2,
    FORMED_REPLICA: 1,
    ROUTER: 1,
    HAPROXY: 1,
    PROXY: 1,
    MANAGER: 1,
    CONTROLLER: 1,
}


def application(name: str, bundle: Path, replicas: int = 1, **args: object) -> dict[str, object]:
    """Return the config of one model."""
    return {
        "name": name,
        "route_prefix": f"/models/{name}",
        "import_path": "headpond.deployment:build",
        "args": {"bundle": str(bundle), "alias": name, **args},
        "deployments": [{"name": "Model", "num_replicas": replicas}],
    }


def config(folder: Path, port: int, beside: Sequence[str], *, extra: bool = False) -> Path:
    """Write the Serve config: the twins, bundles beside them, and one more application if so."""
    bundle = folder / TWINS
    if not bundle.exists():
        write_stumbling_bundle(bundle, step_ms=5)
    applications = [
        application(TWINS, bundle, 2, stuck_after_s=2, max_slots=64),
        *(application(name, ROOT / "bundles" / name) for name in beside),
        *([application("extra", bundle)] if extra else []),
    ]
    aliases = {name: {name: 1} for name in (TWINS, *beside)}
    router = {
        "name": "router",
        "route_prefix": "/",
        "import_path": "headpond.router:build",
        "args": {},
        "deployments": [{"name": "Router", "user_config": {"aliases": aliases}}],
    }
    path = folder / f"faults{'-extra' if extra else ''}.json"
    path.write_text(
        json.dumps(
            {
                "proxy_location": "HeadOnly",
                "http_options": {"host": "127.0.0.1", "port": port},
                "applications": [router, *applications],
            }
        )
    )
    return path


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A platform under test, in a folder of its own."""

    server: Server
    folder: Path
    beside: Sequence[str]
    processes: list[psutil.Process] = field(default_factory=list)
    """All that belong to it; when a platform ends, nothing else tells what it leaves."""

    @property
    def left(self) -> list[str]:
        """The command lines of its processes that are there still."""
        lines = [(each, _line(each)) for each in self.processes]
        return [f"{each.pid} {line[:60]}" for each, line in lines if line is not None]

    def until_gone(self, timeout_s: float = 45.0) -> None:
        """Wait until nothing is left of it."""
        until_s = time.monotonic() + timeout_s
        while left := self.left:
            if time.monotonic() > until_s:
                raise RuntimeError(f"there still are {', '.join(left)}")
            time.sleep(0.3)

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start one of its processes anew, as a supervisor does."""
        started = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.processes.append(psutil.Process(started.pid))

    @property
    def base_url(self) -> str:
        """Where callers find it."""
        return f"http://127.0.0.1:{self.server.port}"

    def find(self, title: str) -> list[psutil.Process]:
        """Return the processes whose command line holds this, the oldest first."""
        found = []
        for process in self.server.tree():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if title in " ".join(process.cmdline()):
                    found.append(process)
        return sorted(found, key=lambda each: each.create_time())

    def is_whole(self) -> bool:
        """Say whether every process is there, and none stands still."""
        counts = dict.fromkeys(EXPECTED, 0)
        for process in self.server.tree():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                line = " ".join(process.cmdline())
                if process.status() == psutil.STATUS_STOPPED:
                    continue
                for title in EXPECTED:
                    counts[title] += title in line
        counts[FORMED_REPLICA] += EMBEDDING not in self.beside
        return all(counts[title] >= count for title, count in EXPECTED.items())

    def until_whole(self, timeout_s: float = 120.0) -> None:
        """Wait until all is there, and a moment more."""
        until_s = time.monotonic() + timeout_s
        while not self.is_whole():
            if time.monotonic() > until_s:
                raise RuntimeError("the platform did not come back")
            time.sleep(0.3)
        time.sleep(5.0)
        self.processes[:] = [*self.processes, *self.server.tree()]

    def strike(self, title: str, number: signal.Signals) -> None:
        """Send a signal to the oldest such process."""
        self.find(title)[0].send_signal(number)

    @property
    def ray_address(self) -> str:
        """Where its control store listens."""
        flag = "--gcs-address="
        (raylet,) = self.find("/raylet/raylet")
        return next(each.removeprefix(flag) for each in raylet.cmdline() if each.startswith(flag))

    def apply(self, *, extra: bool) -> None:
        """Apply the config again, with or without one more application."""
        path = config(self.folder, self.server.port, self.beside, extra=extra)
        subprocess.run(
            [sys.executable, "-m", "headpond.cli", "apply", str(path)],
            # Others may run on this machine.
            env={
                **os.environ,
                **self.server.env,
                "RAY_ADDRESS": self.ray_address,
                "RAY_AUTH_MODE": "token",
            },
            check=True,
            stdout=subprocess.DEVNULL,
        )


def _line(process: psutil.Process) -> str | None:
    """Return a process's command line; None when it has ended."""
    try:
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        pass
    return None


@contextmanager
def open_bench(folder: Path, faults: Sequence[Fault]) -> Iterator[Bench]:
    """Start the platform as users do, with what these faults need; they agree on its environment."""
    port = free_port()
    beside = [EMBEDDING] if any(fault.formed for fault in faults) else []
    beside += [WORDS] if any(fault.socket for fault in faults) else []
    declared = declare_workload(
        folder / "declared", "stumbling", "headpond.testing.stumbling:record"
    )
    paths = [str(declared), os.environ.get("PYTHONPATH", "")]
    with faults[0].around(folder) as env:
        server = Server(
            name=f"faults-{port}",
            command=[sys.executable, "-m", "headpond.cli", "up", str(config(folder, port, beside))],
            port=port,
            ready_path="/readyz",
            ready_text="Ready at",
            env={"PYTHONPATH": os.pathsep.join(filter(None, paths)), **env},
        )
        bench = Bench(server=server, folder=folder, beside=beside)
        try:
            server.start()
            yield bench
        finally:
            server.stop()
            for process in bench.processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
