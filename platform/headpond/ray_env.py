"""The environment in which Ray and Serve run Headpond, and why.

Ray reads these when it is imported and when its processes start, so they are set before:
by `headpond up`, by `eval "$(headpond env)"` in a shell, or in a pod's `env`. A value the
user has already set wins. `docs/router.md` has the measurements behind the choices.
"""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

RAY_ENV: Mapping[str, str] = {
    # HAProxy that notices when a caller goes away; see `headpond.haproxy`.
    "RAY_SERVE_HAPROXY_BINARY_PATH": str(Path(sys.executable).with_name("headpond-haproxy")),
    # HAProxy in front of replicas: a tenth of the Python proxy's CPU per request.
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    # User code on the replica's own loop and gRPC between replicas: a quarter less again.
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # Workers otherwise run at nice 15 and lose every contest for a core.
    "RAY_worker_niceness": "0",
    # uvloop takes one new connection in each of its rounds (libuv since 1.46), asyncio all that
    # there are: with rounds of 30 ms under load, connections came to wait for seconds, and
    # were lost.
    "RAY_USE_UVLOOP": "0",
    # Headers that Serve could not decode would be a 500 before any app sees them; sockets
    # that are read no faster than input is taken in. See `headpond.serve_edge`.
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "headpond.serve_edge:before_serve",
    # A killed proxy is otherwise missed for 25 s.
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "0.5",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "1",
    # An unhealthy replica makes no progress: draining it first would only keep its callers,
    # its memory and its GPU waiting.
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
    # A replica that stands still is otherwise sent new connections for 10 s.
    "RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER": "2s",
    # A deploy reloads HAProxy, which cuts streams older than this afterwards.
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "3600",
    # HAProxy's own ports listen on every interface; the platform has its own metrics.
    "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
    # One HAProxy thread per core of a small machine; more only spin.
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    # Routed calls and answers as large as direct ones; by default gRPC stops at 4 MiB.
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2**30),
    # No phoning home, no log flood of the driver.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "1",
}

_RANGES = (20_000, 32_000)
"""Where the ports of replicas are taken from: below those that systems give to clients."""

_RANGE_PORTS, _PROBED_PORTS = 400, 16


def apply_ray_env(run_dir: Path | None = None) -> None:
    """Set what the user has not set, before `ray` is imported.

    Args:
        run_dir: Where HAProxy keeps its files, so that two platforms on one machine share
            neither them nor its ports; Serve's own place in `/tmp` by default.
    """
    own = {} if run_dir is None else _one_machine(run_dir)
    for name, value in {**RAY_ENV, **own}.items():
        os.environ.setdefault(name, value)


def _one_machine(run_dir: Path) -> Mapping[str, str]:
    first_port = _free_range()
    return {
        # Replicas listen with SO_REUSEPORT from the first port on: with Serve's own range two
        # platforms on one machine would share ports, and answer each other's callers.
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(first_port),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(first_port + _RANGE_PORTS // 2 - 1),
        "RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT": str(first_port + _RANGE_PORTS // 2),
        "RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT": str(first_port + _RANGE_PORTS - 3),
        # So does the proxy that takes requests while no replica of their application is there.
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(first_port + _RANGE_PORTS - 2),
        "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(first_port + _RANGE_PORTS - 1),
        # No load balancer outside this machine has to notice that a replica goes.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(run_dir / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(run_dir / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(run_dir),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(run_dir / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(run_dir / "metrics.sock"),
    }


def _free_range() -> int:
    """Return the first of `_RANGE_PORTS` ports that no other platform here is likely to use.

    Raises:
        RuntimeError: Every range is in use.
    """
    ranges = list(range(*_RANGES, _RANGE_PORTS))
    random.shuffle(ranges)
    for first in ranges:
        if all(_is_free(first + at) for at in range(_PROBED_PORTS)):
            return first
    raise RuntimeError(f"no free ports from {_RANGES[0]} to {_RANGES[1]} for replicas")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - where replicas would listen
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a port of the loopback address on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
