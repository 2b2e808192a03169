"""The environment in which Ray and Serve run Headpond, and why.

Ray reads these when it is imported and when its processes start, so they are set before:
by `headpond up`, by `eval "$(headpond env)"` in a shell, or in a pod's `env`. A value the
user has already set wins. `docs/router.md` has the measurements behind the choices.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

RAY_ENV: Mapping[str, str] = {
    # HAProxy in front of replicas: a tenth of the Python proxy's CPU per request.
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    # User code on the replica's own loop and gRPC between replicas: a quarter less again.
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # Workers otherwise run at nice 15 and lose every contest for a core.
    "RAY_worker_niceness": "0",
    # A killed proxy is otherwise missed for 25 s.
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "1",
    # A deploy reloads HAProxy, which cuts streams older than this afterwards.
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "3600",
    # HAProxy's own ports listen on every interface; the platform has its own metrics.
    "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
    # One HAProxy thread per core of a small machine; more only spin.
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    # No phoning home, no log flood of the driver.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "1",
}


def apply_ray_env(run_dir: Path | None = None) -> None:
    """Set what the user has not set, before `ray` is imported.

    Args:
        run_dir: Where HAProxy keeps its files, so that two platforms on one machine don't
            share them; Serve's own place in `/tmp` by default.
    """
    for name, value in {**RAY_ENV, **_haproxy_files(run_dir)}.items():
        os.environ.setdefault(name, value)


def _haproxy_files(run_dir: Path | None) -> Mapping[str, str]:
    if run_dir is None:
        return {}
    return {
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(run_dir / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(run_dir / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(run_dir),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(run_dir / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(run_dir / "metrics.sock"),
    }
