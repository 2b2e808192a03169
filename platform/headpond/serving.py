"""What Ray Serve runs here, read from its controller and changed through it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

import ray
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ray import ObjectRef

Found = TypeVar("Found")

_CONTROLLER, _NAMESPACE = "SERVE_CONTROLLER_ACTOR", "serve"

Configs = Mapping[str, ServeApplicationSchema]
"""Applications as they were deployed, by name."""


class _Method(Protocol, Generic[Found]):
    """A method of an actor."""

    def remote(self, *args: object) -> ObjectRef[Found]: ...


class _Controller(Protocol):
    """The part of Serve's controller that is used here."""

    @property
    def get_app_configs(self) -> _Method[Configs]: ...

    @property
    def apply_config(self) -> _Method[None]: ...


def application_configs() -> Configs:
    """Return the config of every application that was deployed by one.

    Raises:
        RayError: The controller is away.
    """
    return ray.get(_controller().get_app_configs.remote())


def amend(add: Iterable[ServeApplicationSchema] = (), remove: Iterable[str] = ()) -> None:
    """Deploy some applications and delete others; all that is not named goes on.

    Raises:
        RayError: The controller is away.
    """
    configs = {**application_configs(), **{app.name: app for app in add}}
    kept = [app for name, app in configs.items() if name not in set(remove)]
    # Not `serve.delete`: a controller that starts again would bring back what the last config
    # that was applied has.
    ray.get(_controller().apply_config.remote(ServeDeploySchema(applications=kept)))


async def may_sleep(app: str) -> bool:
    """Say whether an application may have no replica while nobody calls it.

    Raises:
        RayError: The controller is away.
    """
    asked = cast("Awaitable[Configs]", _controller().get_app_configs.remote())
    config = (await asked).get(app)
    return config is not None and any(map(_least_is_none, config.deployments))


def _least_is_none(deployment: object) -> bool:
    scaling = getattr(deployment, "autoscaling_config", None)
    if isinstance(scaling, Mapping):
        return scaling.get("min_replicas") == 0
    return getattr(scaling, "min_replicas", None) == 0


def _controller() -> _Controller:
    return cast("_Controller", ray.get_actor(_CONTROLLER, namespace=_NAMESPACE))
