"""Two platforms on one machine keep out of each other's way."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_PRINT = """
import os
from contextlib import suppress
from pathlib import Path
from headpond.ray_env import apply_ray_env
apply_ray_env(Path("/tmp/x"))
print(*(os.environ[f"RAY_SERVE_{name}_PORT"] for name in (
    "DIRECT_INGRESS_MIN_HTTP", "DIRECT_INGRESS_MAX_HTTP",
    "DIRECT_INGRESS_MIN_GRPC", "DIRECT_INGRESS_MAX_GRPC",
    "FALLBACK_PROXY_HTTP", "FALLBACK_PROXY_GRPC")))
"""


def ports(**given: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", _PRINT],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(port) for port in done.stdout.split()]


def test_replicas_get_a_range_of_their_own() -> None:
    least, most, grpc_least, grpc_most, fallback, grpc_fallback = ports()
    assert 20_000 <= least < most < grpc_least < grpc_most < fallback < grpc_fallback < 32_768
    assert most - least >= 100
    assert len({tuple(ports()) for _ in range(4)}) > 1


def test_what_is_set_stays() -> None:
    assert ports(RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT="30000")[0] == 30_000


def test_a_range_in_use_is_passed_over(tmp_path: Path) -> None:
    del tmp_path
    with socket.socket() as listening:
        with suppress(OSError):  # somebody else listens there: in use all the same
            listening.bind(("127.0.0.1", 20_003))
            listening.listen()
        assert all(ports()[0] != 20_000 for _ in range(4))
