"""A trimmed Ray and Serve on this machine: the embedded default of `headpond up`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import ray
import yaml
from pydantic import ValidationError
from ray import serve
from ray.exceptions import RayError
from ray.serve._private.api import serve_start
from ray.serve.schema import ApplicationStatus, ServeDeploySchema, ServeStatus

from headpond.errors import InvalidRequest, NotReady

_LOOPBACK = "127.0.0.1"
_POLL_S = 0.2


def start_ray(num_cpus: int | None = None) -> None:
    """Start Ray without its dashboard, on the loopback address only.

    Half of Ray's processes and some 400 MB belong to the dashboard, and nothing here reads
    it. `num_cpus` may exceed the cores: it is a count of reservations, not of threads.
    """
    ray.init(
        include_dashboard=False,
        num_cpus=num_cpus,
        _node_ip_address=_LOOPBACK,
        namespace="serve",
        log_to_driver=False,
        configure_logging=False,
    )
    # Its progress is told by `wait_running`.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)


def deploy(config: Mapping[str, object]) -> None:
    """Submit a Serve config to the running Ray; returns before anything is ready.

    Raises:
        InvalidRequest: The config is none of Serve's; names the field.
        NotReady: Serve itself did not start.
    """
    try:
        schema = ServeDeploySchema.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(f"config field {field}: {first['msg']}", param=field) from error
    # The two calls that `serve run` makes for a config; Serve has no public one.
    try:
        client = serve_start(
            http_options=schema.http_options.model_dump(), proxy_location=schema.proxy_location
        )
    except RayError as error:
        port = schema.http_options.port
        raise NotReady(
            f"Serve did not start; is port {port} taken? ({type(error).__name__})"
        ) from error
    client.deploy_apps(schema, _blocking=False)


def load_config(path: Path) -> Mapping[str, object]:
    """Read a Serve config file."""
    config: Mapping[str, object] = yaml.safe_load(path.read_text())
    return config


def wait_running(timeout_s: float, on_change: Callable[[str, str], None]) -> None:
    """Wait until every application runs, and tell of each change of state.

    Args:
        timeout_s: How long at most.
        on_change: Called with an application's name and its new state.

    Raises:
        NotReady: An application failed, with Serve's reason, or time ran out.
    """
    seen: dict[str, str] = {}
    deadline_at = time.monotonic() + timeout_s
    while time.monotonic() < deadline_at:
        status = serve.status()
        for name, app in status.applications.items():
            if seen.get(name) != app.status.value:
                seen[name] = app.status.value
                on_change(name, app.status.value)
            if app.status in (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.UNHEALTHY):
                raise NotReady(f"{name}: {_why(status, name)}")
        if seen and set(seen.values()) == {ApplicationStatus.RUNNING.value}:
            return
        time.sleep(_POLL_S)
    raise NotReady(f"not running after {timeout_s:.0f} s: {seen}")


def _why(status: ServeStatus, name: str) -> str:
    app = status.applications[name]
    reasons = [app.message, *(deployment.message for deployment in app.deployments.values())]
    return next((reason for reason in reasons if reason), "no reason given")


def stop_ray() -> None:
    """Delete every application, draining what runs, and stop Ray with all its processes."""
    if ray.is_initialized():
        for name in serve.status().applications:
            serve.delete(name, _blocking=False)  # so that all drain at once
        while serve.status().applications:
            time.sleep(_POLL_S)
    ray.shutdown()
