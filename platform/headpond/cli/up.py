"""`headpond up`, `apply`, `demo` and `env`: the platform on this machine."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx2
import typer

from headpond import Client
from headpond.cli.console import people, refusals
from headpond.cli.detached import start_detached
from headpond.cli.running import noted
from headpond.dialect import Route
from headpond.errors import NotFound, NotReady
from headpond.ray_env import RAY_ENV, apply_ray_env
from headpond.registry import workloads

_DEFAULT_CONFIG = Path("deployments/local.yaml")
_READY_TIMEOUT_S = 600.0
_POLL_S = 0.2
_LOOK_S = 1.0
_BATCH_TIMEOUT_S = 120.0
_SHOWN_TEXT = 200
_SHORT_FOLDER, _MOST_OF_PATH = "/tmp", 9  # noqa: S108 - what is made there is a folder of our own

Config = Annotated[Path, typer.Argument(help="A Serve config file.", exists=True, dir_okay=False)]
Cpus = Annotated[int, typer.Option(help="CPUs that Ray may reserve, as a count of reservations.")]
Port = Annotated[int | None, typer.Option(help="Listen here instead of the config's port.")]


def env() -> None:
    """Print the environment for Ray, for `eval "$(headpond env)"` before `ray start`."""
    for name, value in RAY_ENV.items():
        typer.echo(f"export {name}={value}")


def up(
    config: Config = _DEFAULT_CONFIG,
    cpus: Cpus = 16,
    port: Port = None,
    *,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it is ready; `down` stops it.")
    ] = False,
) -> None:
    """Start every application of a Serve config on a local Ray, and stay up until stopped."""
    if detach:
        _up_detached(config, cpus, port)
        return
    with _platform(config, cpus, port) as base_url:
        from headpond import local_ray  # noqa: PLC0415 - Ray reads its environment when imported

        _tell_ready(base_url, "Ctrl-C", local_ray.logs_folder())
        _stay_up()


def _up_detached(config: Path, cpus: int, port: int | None) -> None:
    words = ["up", str(config), "--cpus", str(cpus)]
    with refusals():
        note, log = start_detached(words if port is None else [*words, "--port", str(port)])
    _tell_ready(note.base_url, f"`headpond down --port {urlsplit(note.base_url).port}`", log)


def _tell_ready(base_url: str, stop: str, logs: Path | None) -> None:
    told = f"Ready at {base_url} (in a browser: the playground); {stop} stops it. Logs: {logs}"
    people.print(told, soft_wrap=True, highlight=False)


def apply(config: Config = _DEFAULT_CONFIG) -> None:
    """Bring a changed config to the platform that `up` runs; what did not change goes on."""
    apply_ray_env()
    from headpond import local_ray  # noqa: PLC0415 - Ray reads its environment when imported

    with refusals():
        from headpond.rollouts.log import RolloutLog  # noqa: PLC0415
        from headpond.rollouts.ray_keys import RayKeys  # noqa: PLC0415
        from headpond.rollouts.started import with_started  # noqa: PLC0415
        from headpond.serving import application_configs  # noqa: PLC0415

        declared = local_ray.load_config(config)
        local_ray.parse_config(declared)
        local_ray.join_ray()
        running = {
            name: app.model_dump(exclude_unset=True) for name, app in application_configs().items()
        }
        kept = with_started(declared, RolloutLog(RayKeys()), running)
        local_ray.deploy(local_ray.parse_config(kept))
        local_ray.wait_running(_READY_TIMEOUT_S, _report(time.monotonic()))


def demo(
    config: Config = _DEFAULT_CONFIG,
    cpus: Cpus = 16,
    port: Port = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Stop after the calls.")] = False,
    then: Annotated[str, typer.Option(help="Run this, too; HEADPOND_BASE_URL is set.")] = "",
) -> None:
    """Start the platform, show one working call per workload, and stay up until stopped."""
    with _platform(config, cpus, port) as base_url:
        _show_calls(base_url)
        _show_batches(base_url)
        if then:
            environment = {**os.environ, "HEADPOND_BASE_URL": base_url}
            # Whoever starts the demo chooses what is run.
            subprocess.run(shlex.split(then), env=environment, check=True)  # noqa: S603
        if not once:
            people.print(f"\nUp at {base_url}; Ctrl-C stops it.")
            _stay_up()


@contextmanager
def _platform(config_path: Path, cpus: int, port: int | None) -> Iterator[str]:
    """Run the applications of a config; yields the base URL once everything is ready."""
    folder = tempfile.TemporaryDirectory(prefix="headpond-", dir=_socket_folder())
    with refusals(), folder as run_dir, ExitStack() as note:
        apply_ray_env(Path(run_dir))
        # Ray reads its environment when it is imported.
        from headpond import local_ray  # noqa: PLC0415

        started = time.monotonic()
        config = local_ray.load_config(config_path)
        if port is not None:
            config = {**config, "http_options": {**_http_options(config), "port": port}}
        base_url = _base_url(config)
        # `headpond down` and `kill` end a platform that is starting as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        tell_ready = note.enter_context(noted(base_url))
        try:
            schema = local_ray.parse_config(config)
            people.print(f"Ray at {local_ray.start_ray(cpus)}")
            local_ray.deploy(schema)
            local_ray.wait_running(_READY_TIMEOUT_S, _report(started))
            for prefix in sorted(set(_prefixes(config))):
                _wait_ready(f"{base_url}{prefix}/readyz", started + _READY_TIMEOUT_S)
            _report(started)("all", "ready")
            tell_ready()
            yield base_url
        finally:
            local_ray.stop_ray()


def _socket_folder() -> str:
    """Return where HAProxy's sockets lie: their paths have at most 97 bytes, most of them Serve's."""
    own = tempfile.gettempdir()
    return _SHORT_FOLDER if len(own) > _MOST_OF_PATH else own


def _report(started: float) -> Callable[[str, str], None]:
    def report(name: str, state: str) -> None:
        people.print(f"[dim]{time.monotonic() - started:5.1f} s[/dim]  {name}  {state}")

    return report


def _http_options(config: Mapping[str, object]) -> Mapping[str, object]:
    options = config.get("http_options")
    return options if isinstance(options, Mapping) else {}


def _base_url(config: Mapping[str, object]) -> str:
    options = _http_options(config)
    host, port = options.get("host", "127.0.0.1"), options.get("port", 8000)
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"  # noqa: S104


def _prefixes(config: Mapping[str, object]) -> Iterator[str]:
    """Yield the prefix of each application that has one; the proxy learns of it after the application runs."""
    applications = config.get("applications")
    for application in applications if isinstance(applications, list) else []:
        if isinstance(application, Mapping) and application.get("route_prefix", "/") is not None:
            yield str(application.get("route_prefix", "/")).rstrip("/")


def _wait_ready(url: str, until: float) -> None:
    reason = "no answer"
    while time.monotonic() < until:
        try:
            answer = httpx2.get(url, timeout=5)
        except httpx2.HTTPError as error:
            reason = type(error).__name__
        else:
            if answer.status_code == httpx2.codes.OK:
                return
            reason = answer.text
        time.sleep(_POLL_S)
    raise NotReady(f"{url}: {reason}")


def _examples(base_url: str) -> Iterator[tuple[str, Route, Mapping[str, object]]]:
    """Yield the first route of every workload that has a model, and its example for that."""
    models = httpx2.get(f"{base_url}/v1/models", timeout=10).json()["data"]
    first = {model["workload"]: model["id"] for model in reversed(models)}
    for workload, record in workloads().items():
        if workload in first:
            route = record.routes[0]
            yield workload, route, {**route.example, "model": first[workload]}


def _show_calls(base_url: str) -> None:
    """Send the example of every workload that has a model."""
    for workload, route, body in _examples(base_url):
        started = time.monotonic()
        answer = httpx2.post(f"{base_url}{route.path}", json=body, timeout=120)
        answer.raise_for_status()
        took_s = time.monotonic() - started
        typer.echo(f"\n# {workload}: {body['model']} ({took_s:.2f} s)")
        typer.echo(
            f"curl {base_url}{route.path} -H 'content-type: application/json' \\\n"
            f"  -d '{json.dumps(body)}'"
        )
        typer.echo(json.dumps(answer.json(), indent=2, ensure_ascii=False))


def _show_batches(base_url: str) -> None:
    """Run a batch of two records by every workload, where batches are served."""
    with Client(base_url=base_url) as client:
        for workload, route, body in _examples(base_url):
            line = {"method": "POST", "url": route.path, "body": body}
            lines = [json.dumps({"custom_id": name, **line}) for name in ("first", "second")]
            try:
                file = client.files.create("\n".join(lines).encode(), filename="demo.jsonl")
            except NotFound:
                return
            started = time.monotonic()
            batch = client.batches.create(input_file_id=file.id, endpoint=route.path)
            batch = client.batches.wait(batch.id, timeout_s=_BATCH_TIMEOUT_S)
            took_s = time.monotonic() - started
            results = list(client.batches.results(batch))
            completed = sum(result.error is None for result in results)
            counts = f"{completed} of {len(lines)} records"
            typer.echo(f"\n# batch, {workload}: {counts} by {batch.bundle} ({took_s:.2f} s)")
            typer.echo(f"headpond batch submit demo.jsonl --endpoint {route.path} --wait")
            for result in results:
                typer.echo(f"{result.model_dump_json()[:_SHOWN_TEXT]}…")


def _stay_up() -> None:
    """Return when a signal says so.

    Raises:
        NotReady: A process of Ray's has died that nothing replaces.
    """
    from headpond import local_ray  # noqa: PLC0415 - Ray reads its environment when imported

    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    while not stopped.wait(_LOOK_S):
        if (lost := local_ray.lost_process()) is not None:
            raise NotReady(f"Ray's {lost} has died, and the platform with it; start it again")
