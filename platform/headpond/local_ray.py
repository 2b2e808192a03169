"""A trimmed Ray and Serve on this machine: the embedded default of `headpond up`."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import ray
import yaml
from pydantic import BaseModel, ValidationError
from ray import serve
from ray._private.node import Node
from ray._private.ray_constants import PROCESS_TYPE_GCS_SERVER
from ray._private.worker import global_worker
from ray.exceptions import RayError
from ray.serve._private.api import serve_start
from ray.serve._private.common import ReplicaState
from ray.serve.schema import ApplicationStatus, ServeDeploySchema, ServeStatus

from headpond.deployment import ModelArgs
from headpond.errors import InvalidRequest, NotReady
from headpond.jobs.deployment import JobWorkerArgs
from headpond.rollouts.started import MODEL, ROUTER
from headpond.router import RouterArgs
from headpond.serve_handle import MODEL_DEPLOYMENT

_POLL_S = 0.2
_END_S = 5.0
"""So long processes of Ray have to end by themselves."""

_FRONT_S, _ON_THE_WAY_S = 5.0, 2.0
"""So long models still take calls when an application before them goes: until it takes none, at
most, and while its last ones are on their way."""

_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+: )", re.MULTILINE)
"""The last line of a traceback: an exception's name, and what it says."""


def start_ray(num_cpus: int | None = None) -> str:
    """Start Ray with those of its processes that something here needs; returns its address.

    `num_cpus` may exceed the cores: it is a count of reservations, not of threads.
    """
    ray.init(
        include_dashboard=False,
        num_cpus=num_cpus,
        namespace="serve",
        log_to_driver=False,
        configure_logging=False,
    )
    if global_worker.node is not None:
        _end_idle_processes(global_worker.node)
    # Its progress is told by `wait_running`.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    address: str = ray.get_runtime_context().gcs_address
    return address


def logs_folder() -> Path | None:
    """Return where the Ray that was started here writes its logs; None where none was."""
    node = global_worker.node
    return None if node is None else Path(node.get_logs_dir_path())


def _end_idle_processes(node: Node) -> None:
    """End what Ray starts on every head node, and nothing here has any use for.

    A dashboard without pages, an autoscaler without a cloud, and what would bring workers'
    logs to a driver: 60 MB each. Ray has no setting for that.
    """
    node.kill_dashboard()
    node.kill_monitor()
    node.kill_log_monitor()


def parse_config(config: Mapping[str, object]) -> ServeDeploySchema:
    """Check a Serve config, and the arguments of our own applications in it.

    Raises:
        InvalidRequest: Names the first field at fault.
    """
    try:
        schema = ServeDeploySchema.model_validate(config)
    except ValidationError as error:
        raise _invalid("config", error) from None
    builders: dict[str, type[BaseModel]] = {
        MODEL: ModelArgs,
        ROUTER: RouterArgs,
        "headpond.jobs.deployment:build": JobWorkerArgs,
    }
    for app in schema.applications:
        if (args := builders.get(app.import_path)) is not None:
            try:
                args.model_validate(app.args)
            except ValidationError as error:
                raise _invalid(f"args of application {app.name!r}", error) from None
    return schema


def _invalid(what: str, error: ValidationError) -> InvalidRequest:
    # Without its cause: what pydantic prints of one may hold keys.
    first = error.errors(include_input=False, include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return InvalidRequest(f"{what}: {field}: {first['msg']}")


def deploy(schema: ServeDeploySchema) -> None:
    """Submit a Serve config to the running Ray; returns before anything is ready.

    Raises:
        NotReady: Serve itself did not start.
    """
    # The two calls that `serve run` makes for a config; Serve has no public one.
    try:
        client = serve_start(
            http_options=schema.http_options.model_dump(), proxy_location=schema.proxy_location
        )
    except RayError:
        port = schema.http_options.port
        raise NotReady(f"Serve did not start; is port {port} taken?") from None
    client.deploy_apps(schema, _blocking=False)


def load_config(path: Path) -> Mapping[str, object]:
    """Read a Serve config file."""
    config: Mapping[str, object] = yaml.safe_load(path.read_text())
    return config


def wait_running(
    timeout_s: float, on_change: Callable[[str, str], None], only: str | None = None
) -> None:
    """Wait until every application runs, and tell of each change of state.

    Args:
        timeout_s: How long at most.
        on_change: Called with an application's name and its new state.
        only: The one application to wait for, whatever becomes of the others.

    Raises:
        NotReady: An application failed, with Serve's reason, or time ran out.
    """
    seen: dict[str, str] = {}
    deadline_at = time.monotonic() + timeout_s
    while time.monotonic() < deadline_at:
        status = serve.status()
        for name, app in status.applications.items():
            if only not in (None, name):
                continue
            if seen.get(name) != app.status.value:
                seen[name] = app.status.value
                on_change(name, app.status.value)
            if app.status in (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.UNHEALTHY):
                raise NotReady(f"{name}: {_why(status, name)}")
        # What is being deleted is waited for, and what is gone is not.
        states = {app.status for app in status.applications.values()}
        if seen and states == {ApplicationStatus.RUNNING}:
            return
        time.sleep(_POLL_S)
    raise NotReady(f"not running after {timeout_s:.0f} s: {seen}")


def _why(status: ServeStatus, name: str) -> str:
    """Return the reason in one line: the error at the end of Serve's traceback."""
    app = status.applications[name]
    texts = [*(deployment.message for deployment in app.deployments.values()), app.message]
    text = next((text for text in texts if text), "no reason given")
    errors = list(_ERROR.finditer(text))
    return " ".join(text[errors[-1].start(1) :].split()) if errors else text


def join_ray(address: str | None = None) -> None:
    """Connect to the Ray at an address, HOST:PORT, or the one that runs on this machine.

    Args:
        address: Where it is; what `RAY_ADDRESS` says when None.

    Raises:
        NotReady: None runs there, or not for us.
    """
    named = address or os.environ.get("RAY_ADDRESS")
    try:
        ray.init(
            address=named or "auto",
            namespace="serve",
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except ConnectionError:
        if named is None:
            raise NotReady("no Ray runs on this machine; start one with `headpond up`") from None
        # Ray shows its token to an address that is named only when it is told to.
        raise NotReady(
            f"no Ray at {named} lets us in; if it asks for a token, set RAY_AUTH_MODE=token"
        ) from None
    logging.getLogger("ray.serve").setLevel(logging.WARNING)


def lost_process() -> str | None:
    """Return the name of a process that has died and that nothing here replaces.

    Only of the Ray that `start_ray` has started. Its control store can be started again by
    whoever watches over it, where it keeps what it knows in a Redis.
    """
    node = global_worker.node
    dead = [] if node is None else [name for name, _ in node.dead_processes()]
    if os.environ.get("RAY_REDIS_ADDRESS"):
        dead = [name for name in dead if name != PROCESS_TYPE_GCS_SERVER]
    return dead[0] if dead else None


def stop_ray() -> None:
    """Delete every application, draining what runs, and stop Ray with all its processes."""
    if ray.is_initialized() and lost_process() is None:
        _delete_all()
    started = _processes(global_worker.node)
    ray.shutdown()
    # Agents of a Ray whose control store has died go on looking for it for minutes.
    _, left = psutil.wait_procs(started, timeout=_END_S)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _delete_all() -> None:
    """Delete every application: those that others' calls come through first, the rest at once.

    A router learns only after a while that replicas take nothing more; until then its calls would
    wait for them.
    """
    applications = serve.status().applications
    fronts = [name for name, app in applications.items() if MODEL_DEPLOYMENT not in app.deployments]
    for name in fronts:
        serve.delete(name, _blocking=False)
    until_s = time.monotonic() + _FRONT_S
    while time.monotonic() < until_s and any(map(_takes, fronts)):
        time.sleep(_POLL_S)
    time.sleep(_ON_THE_WAY_S if fronts else 0.0)
    for name in applications.keys() - set(fronts):
        serve.delete(name, _blocking=False)
    while serve.status().applications:
        time.sleep(_POLL_S)


def _takes(name: str) -> bool:
    """Say whether any replica of an application still takes calls."""
    app = serve.status().applications.get(name)
    deployments = () if app is None else app.deployments.values()
    return any(each.replica_states.get(ReplicaState.RUNNING, 0) for each in deployments)


def _processes(node: Node | None) -> list[psutil.Process]:
    """Return what a Ray has started here, and what that has."""
    found: list[psutil.Process] = []
    alive = [] if node is None else node.live_processes()  # type: ignore[no-untyped-call]
    for _, process in alive:
        with suppress(psutil.NoSuchProcess):
            one = psutil.Process(process.pid)
            found += [one, *one.children(recursive=True)]
    return found
