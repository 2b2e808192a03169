"""The faults: what strikes, and how long callers are watched afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from fault_platform import (
    CONTROLLER,
    FORMED_REPLICA,
    GCS,
    HAPROXY,
    MANAGER,
    PROXY,
    REPLICA,
    ROUTER,
    TWINS,
    Bench,
)
from headpond.ray_env import free_port
from headpond.testing.stumbling import LACK_MEMORY, STAND_STILL

Env = Mapping[str, str]


def _nothing(_: Path) -> AbstractContextManager[Env]:
    return nullcontext({})


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        name: Its name in the table.
        strike: Makes it.
        after_s: How long callers are watched afterwards.
        formed: Whether they ask the model whose work is batches.
        socket: Whether somebody speaks over a WebSocket meanwhile.
        alone: Whether it gets a platform of its own.
        ends: Whether the platform ends by it, as it should.
        around: What runs beside that, given a folder; returns its environment.
    """

    name: str
    strike: Callable[[Bench], None]
    after_s: float = 15.0
    formed: bool = False
    socket: bool = False
    alone: bool = False
    ends: bool = False
    around: Callable[[Path], AbstractContextManager[Env]] = _nothing


def sent(title: str, number: signal.Signals) -> Callable[[Bench], None]:
    """Return a fault that sends a signal."""
    return lambda bench: bench.strike(title, number)


def said(text: str) -> Callable[[Bench], None]:
    """Return a fault that is a call at which the engine stumbles."""

    def post(bench: Bench) -> None:
        body = json.dumps({"model": TWINS, "text": text}).encode()
        request = urllib.request.Request(  # noqa: S310 - a loopback address
            f"{bench.base_url}/v1/stumble", body, {"content-type": "application/json"}
        )
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=40)  # noqa: S310

    return lambda bench: threading.Thread(target=post, args=(bench,)).start()


@contextmanager
def redis(folder: Path) -> Iterator[Env]:
    """Run a Redis for Ray's control store."""
    port = free_port()
    store = subprocess.Popen(
        ["redis-server", "--port", str(port), "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield {"RAY_REDIS_ADDRESS": f"127.0.0.1:{port}"}
    finally:
        store.terminate()
        store.wait()


def deployed(bench: Bench) -> None:
    """Add an application, and take it away again."""
    bench.apply(extra=True)
    bench.apply(extra=False)


def stopped(bench: Bench) -> None:
    """Have the platform stop, as an orchestrator does."""
    if bench.server.process is not None:
        bench.server.process.send_signal(signal.SIGTERM)


def replaced(bench: Bench) -> None:
    """Kill Ray's control store, and start it again 5 s later, as a supervisor does."""
    (process,) = bench.find(GCS)
    port = bench.ray_address.rpartition(":")[2]
    command = [
        f"--gcs_server_port={port}" if each.startswith("--gcs_server_port=") else each
        for each in process.cmdline()
    ]
    env = process.environ()
    process.kill()
    time.sleep(5)
    bench.start(command, env)


FAULTS = (
    Fault(name="replica killed", strike=sent(REPLICA, signal.SIGKILL)),
    Fault(name="replica stopped", strike=sent(REPLICA, signal.SIGSTOP), after_s=25),
    Fault(name="only replica killed", strike=sent(FORMED_REPLICA, signal.SIGKILL), formed=True),
    Fault(
        name="only replica stopped",
        strike=sent(FORMED_REPLICA, signal.SIGSTOP),
        after_s=30,
        formed=True,
    ),
    Fault(name="engine stuck", strike=said(STAND_STILL)),
    Fault(name="engine lacks memory", strike=said(LACK_MEMORY), after_s=10),
    Fault(name="router killed", strike=sent(ROUTER, signal.SIGKILL)),
    Fault(name="router stopped", strike=sent(ROUTER, signal.SIGSTOP), after_s=30),
    Fault(name="HAProxy killed", strike=sent(HAPROXY, signal.SIGKILL)),
    Fault(name="HAProxy stopped", strike=sent(HAPROXY, signal.SIGSTOP), after_s=30),
    Fault(name="HAProxy's manager killed", strike=sent(MANAGER, signal.SIGKILL)),
    Fault(name="Serve's own proxy killed", strike=sent(PROXY, signal.SIGKILL)),
    Fault(name="Serve's controller killed", strike=sent(CONTROLLER, signal.SIGKILL)),
    Fault(name="unrelated deploy", strike=deployed, after_s=40, socket=True),
    Fault(name="platform stopped (SIGTERM)", strike=stopped, socket=True, alone=True, ends=True),
    Fault(name="GCS killed, no Redis", strike=sent(GCS, signal.SIGKILL), alone=True, ends=True),
    Fault(name="GCS killed, with Redis", strike=replaced, after_s=20, alone=True, around=redis),
)
