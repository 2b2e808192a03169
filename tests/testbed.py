"""A running platform: the echo workload and a real model on a local Ray, as users see it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil
import pytest

from headpond.ray_env import free_port
from headpond.testing.echo import write_echo_bundle
from headpond.testing.install import declare_workload
from headpond.testing.stumbling import write_stumbling_bundle

ROOT = Path(__file__).parents[1]
KEY, OTHER_KEY = "sk-test-one", "sk-test-two"
QUOTA_KEY, QUOTA = "sk-test-quota", 1000
"""The key of a tenant that may have so many pieces of echo a day."""
MODEL = "smollm2-135m"
FORMED = ("all-minilm-l6-v2", "minilm-maxsim", "efficientnet-lite0")
"""Bundles of workloads that form batches; their names are their aliases."""
WORDS, WHISPER = SPEECH = ("streaming-words", "whisper-tiny-en")
"""Bundles of speech recognition, a streaming model and a chunked one; also their own aliases."""
TWINS = "twins"
"""The alias of a stumbling echo with two replicas."""
DIGITS = "tinysd-digits"
"""A bundle of diffusion; also its own alias."""
RESUME_S = 4.0
"""How long sessions are kept for clients that were cut off."""
NAP: dict[str, object] = {
    "min_replicas": 0,
    "initial_replicas": 0,
    "max_replicas": 1,
    "upscale_delay_s": 0,
    "downscale_delay_s": 3,
    "downscale_to_zero_delay_s": 3,
}
"""How a model is scaled that has no replica until somebody asks."""
START_TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class Platform:
    """A running platform, as its users see it."""

    base_url: str
    process: psutil.Process
    log: Path

    @property
    def ray_address(self) -> str:
        """Where commands join its Ray."""
        (found,) = re.findall(r"^Ray at (\S+)", self.log.read_text(), re.M)
        return str(found)

    def direct(self, alias: str) -> str:
        """The base URL of a model's own replicas."""
        return f"{self.base_url}/models/{alias}"

    def bundle_of(self, alias: str) -> str:
        """The one bundle behind an alias, as callers are told of it."""
        url = f"{self.base_url}/v1/models"
        answer = httpx2.get(url, headers={"authorization": f"Bearer {KEY}"}, timeout=10)
        models = answer.raise_for_status().json()["data"]
        bundle: str = next(each["bundles"][0] for each in models if each["id"] == alias)
        return bundle

    def apply(self, config: Path) -> None:
        """Bring a changed config to it, as its users do."""
        (raylet,) = self.processes("raylet/raylet")
        address = next(each for each in raylet.cmdline() if each.startswith("--gcs-address="))
        # Others may run on this machine.
        env = {**raylet.environ(), "RAY_ADDRESS": address.partition("=")[2]}
        command = [sys.executable, "-m", "headpond.cli", "apply", str(config)]
        subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, timeout=120)

    def replicas(self, deployment: str) -> list[psutil.Process]:
        """The processes of one deployment's replicas."""
        return self.processes(f"ray::ServeReplica:{deployment}")

    def processes(self, title: str) -> list[psutil.Process]:
        """What it has started whose command line holds this."""
        found = []
        for child in self.process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # Ray's short-lived helpers come and go
                if title in " ".join(child.cmdline()):
                    found.append(child)
        return found


def serve_config(folder: Path, port: int) -> Path:
    """Write the Serve config of the test platform."""
    settings = {
        "keys": [
            {"key": KEY, "tenant": "one", "admin": True},
            {"key": OTHER_KEY, "tenant": "two", "metrics": True},
            {"key": QUOTA_KEY, "tenant": "three"},
        ],
        "tenants": {
            "three": {"quotas": [{"unit": "output_chunks", "limit": QUOTA, "per": "365d"}]}
        },
        "usage": {"url": f"sqlite:///{folder}/usage.db", "write_s": 0.2},
        "sessions": {"resume_s": RESUME_S},
    }

    def model(name: str, alias: str, *, replicas: int = 1, **args: object) -> dict[str, object]:
        return {
            "name": name,
            "route_prefix": f"/models/{alias}",
            "import_path": "headpond.deployment:build",
            "args": {"alias": alias, "settings": settings, **args},
            "deployments": [{"name": "Model", "num_replicas": replicas}],
        }

    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
        "applications": [
            {
                "name": "router",
                "route_prefix": "/",
                "import_path": "headpond.router:build",
                "args": {"settings": settings, "jobs": {"folder": str(folder / "jobs")}},
                "deployments": [
                    {
                        "name": "Router",
                        "user_config": {
                            "aliases": {
                                "echo": {"echo": 1},
                                TWINS: {TWINS: 1},
                                "nap": {"nap": 1},
                                MODEL: {"generation": 1},
                                **{alias: {alias: 1} for alias in (*FORMED, *SPEECH, DIGITS)},
                            }
                        },
                    }
                ],
            },
            {
                "name": "jobs",
                "route_prefix": None,
                "import_path": "headpond.jobs.deployment:build",
                "args": {
                    "store": {"folder": str(folder / "jobs")},
                    "lease_s": 3,
                    "shard_s": 1,
                    "in_flight": 8,
                },
            },
            model("echo", "echo", bundle=str(write_echo_bundle(folder / "echo", step_ms=5))),
            {
                **model("nap", "nap", bundle=str(folder / "echo")),
                "deployments": [{"name": "Model", "autoscaling_config": NAP}],
            },
            model(
                TWINS,
                TWINS,
                replicas=2,
                bundle=str(write_stumbling_bundle(folder / TWINS, step_ms=5)),
                stuck_after_s=2,
            ),
            model(
                "generation",
                MODEL,
                bundle=str(ROOT / "bundles/smollm2-135m-instruct"),
                threads=2,
                state_bytes="128MiB",
            ),
            *(
                model(alias, alias, bundle=str(ROOT / "bundles" / alias), threads=2)
                for alias in FORMED
            ),
            *(
                model(alias, alias, bundle=str(ROOT / "bundles" / alias), state_bytes="64MiB")
                for alias in (*SPEECH, DIGITS)
            ),
        ],
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@contextmanager
def running_platform(folder: Path) -> Iterator[Platform]:
    """Start `headpond up` as a user would, and stop it with Ctrl-C."""
    port = free_port()
    log = folder / "up.log"
    declared = declare_workload(folder / "declared", "echo", "headpond.testing.echo:record")
    declare_workload(declared, "stumbling", "headpond.testing.stumbling:record")
    paths = [str(declared), os.environ.get("PYTHONPATH", "")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "headpond.cli", "up", str(serve_config(folder, port))],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    running = Platform(
        base_url=f"http://127.0.0.1:{port}", process=psutil.Process(process.pid), log=log
    )
    try:
        wait_ready(running, process)
        yield running
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=60)
        finally:
            process.kill()


def wait_ready(platform: Platform, process: subprocess.Popen[bytes]) -> None:
    """Wait until the command says that all is ready, and fail with its log when it does not."""
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until and process.poll() is None:
        if "Ready at" in platform.log.read_text():
            return
        time.sleep(0.2)
    pytest.fail(f"the platform did not start:\n{platform.log.read_text()[-4000:]}")
