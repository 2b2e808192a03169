"""What rollouts started, when a config is applied that does not know of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headpond.rollouts.changes import effective
from headpond.rollouts.log import RolloutLog
from headpond.rollouts.second import Config

ROUTER, MODEL = "headpond.router:build", "headpond.deployment:build"
"""The builders of our applications, as configs name them."""


def with_started(config: Config, log: RolloutLog, running: Mapping[str, Config]) -> Config:
    """Return a Serve config with the applications that rollouts under way need.

    Serve deletes what a config does not name. What rollouts started and need no more, as the
    config gives their alias other targets or they were taken back, is deleted.

    Args:
        config: What is to be applied; checked already.
        log: Where rollouts are.
        running: The applications that are deployed.
    """
    apps = [app for app in _list(config.get("applications")) if isinstance(app, Mapping)]
    table = effective(dict(_aliases(apps)), log.tips())
    needed = {app for weights in table.values() for app in weights}
    declared = {app.get("name") for app in apps}
    kept = []
    for name in log.started():
        if name in needed and name in running and name not in declared:
            kept.append(running[name])
        else:
            log.note_removed(name)
    return {**config, "applications": [*apps, *kept]}


def _aliases(apps: list[Config]) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield what routers say of each alias."""
    for app in apps:
        if app.get("import_path") != ROUTER:
            continue
        for deployment in _list(app.get("deployments")):
            settings = deployment.get("user_config") if isinstance(deployment, Mapping) else None
            aliases = settings.get("aliases") if isinstance(settings, Mapping) else None
            yield from aliases.items() if isinstance(aliases, Mapping) else ()


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
