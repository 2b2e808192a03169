"""Parts of the chart that run without a cluster: `helm test`, and replicas by work."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from headpond.ray_env import free_port
from headpond.telemetry.scrape import Scrape
from headpond.testing.echo import write_echo_bundle
from headpond.testing.echo_dialect import MOST_CHUNKS
from headpond.testing.install import declare_workload
from testbed import ROOT, Platform, wait_ready

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

KEY = "a key of ours"
SMOKE = ROOT / "helm/headpond/files/smoke.py"
STEP_MS, SLOTS = 50, 2


def config(folder: Path, port: int) -> dict[str, object]:
    """Two routers and a model that is scaled by its work, as the chart would write them."""
    keys = folder / "settings.yaml"
    keys.write_text(json.dumps({"keys": [{"key": KEY, "tenant": "one", "metrics": True}]}))
    by_work = {
        "min_replicas": 1,
        "max_replicas": 2,
        "metrics_interval_s": 0.5,
        "look_back_period_s": 1,
        "upscale_delay_s": 1,
        "policy": {
            "policy_function": "headpond.autoscaling:ByWork",
            "policy_kwargs": {"target_load": 0.7},
        },
    }
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": port},
        "applications": [
            {
                "name": "router",
                "route_prefix": "/",
                "import_path": "headpond.router:build",
                "args": {"settings": str(keys)},
                "deployments": [
                    {
                        "name": "Router",
                        "num_replicas": 2,
                        "user_config": {"aliases": {"echo": {"echo": 100}}},
                    }
                ],
            },
            {
                "name": "echo",
                "route_prefix": "/models/echo",
                "import_path": "headpond.deployment:build",
                "args": {
                    "bundle": str(write_echo_bundle(folder / "echo", step_ms=STEP_MS)),
                    "alias": "echo",
                    "settings": str(keys),
                    "max_slots": SLOTS,
                },
                "deployments": [{"name": "Model", "autoscaling_config": by_work}],
            },
        ],
    }


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The platform of `config`."""
    folder = tmp_path_factory.mktemp("chart")
    declared = declare_workload(folder / "declared", "echo", "headpond.testing.echo:record")
    port = free_port()
    path, log = folder / "config.json", folder / "up.log"
    path.write_text(json.dumps(config(folder, port)))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "headpond.cli", "up", str(path)],
            env=environment(declared),
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


def environment(declared: Path) -> dict[str, str]:
    """This process's, with the echo workload declared."""
    paths = os.pathsep.join(filter(None, [str(declared), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": paths}


def smoke(platform: Platform, *aliases: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
    """Run what `helm test` runs."""
    return subprocess.run(
        [sys.executable, SMOKE, "20", *aliases],
        env={
            **environment(platform.log.parent / "declared"),
            "HEADPOND_BASE_URL": platform.base_url,
            "HEADPOND_API_KEY": key,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_helm_test_calls_every_alias(scaled: Platform) -> None:
    done = smoke(scaled, "echo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "echo: /v1/echo 200\n"


def test_helm_test_names_what_is_not_served(scaled: Platform) -> None:
    done = smoke(scaled, "echo", "gone")
    assert done.returncode == 1
    assert "gone: not served; there are echo" in done.stdout


def test_helm_test_needs_the_key(scaled: Platform) -> None:
    assert smoke(scaled, "echo", key="another").returncode != 0


async def test_whichever_router_is_scraped_shows_both(scaled: Platform) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    calls, seen = 6, []
    async with httpx2.AsyncClient(base_url=scaled.base_url, headers=headers) as http:
        before = Scrape.parse((await http.get("/metrics")).text, 0.0)
        for _ in range(calls):
            answer = await http.post("/v1/echo", json={"model": "echo", "text": "hello"})
            assert answer.status_code == 200, answer.text
            seen.append(Scrape.parse((await http.get("/metrics")).text, 0.0))
    name = "headpond_http_received_total"
    counted = [each.total(name, workload="echo") for each in (before, *seen)]
    assert [count - counted[0] for count in counted[1:]] == list(range(1, calls + 1))
    routers = {tuple(sorted(each.values(name, "router"))) for each in seen}
    assert [len(names) for names in routers] == [2]


async def test_few_long_calls_bring_a_second_replica(scaled: Platform) -> None:
    # As many calls as there are slots: a count of calls would find one replica enough.
    body = {"model": "echo", "text": "x" * MOST_CHUNKS, "chunks": MOST_CHUNKS}
    headers = {"authorization": f"Bearer {KEY}", "x-headpond-deadline-ms": "600000"}
    assert len(scaled.replicas("echo:Model")) == 1
    async with httpx2.AsyncClient(base_url=scaled.base_url, timeout=600) as http:
        calls = [
            asyncio.create_task(http.post("/v1/echo", json=body, headers=headers))
            for _ in range(SLOTS)
        ]
        try:
            async with asyncio.timeout(60):
                while len(scaled.replicas("echo:Model")) < 2:
                    assert not any(call.done() for call in calls)
                    await asyncio.sleep(0.2)
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
