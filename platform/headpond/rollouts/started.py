"""What rollouts started, when a config is applied that does not know of it."""

from __future__ import annotations

from collections.abc import Mapping

from ray.serve.schema import ServeDeploySchema

from headpond.rollouts.changes import effective
from headpond.rollouts.log import RolloutLog
from headpond.serving import ROUTER, Configs


def with_started(schema: ServeDeploySchema, log: RolloutLog, running: Configs) -> ServeDeploySchema:
    """Return a config with the applications that rollouts under way need.

    Serve deletes what a config does not name. What rollouts started and need no more, as the
    config gives their alias other targets or they were taken back, is deleted.

    Args:
        schema: The config that is to be applied.
        log: Where rollouts are.
        running: The applications that are deployed.
    """
    table = effective(declared_aliases(schema), log.tips())
    needed = {app for weights in table.values() for app in weights}
    declared = {app.name for app in schema.applications}
    kept = []
    for name in log.started():
        if name in needed and name in running and name not in declared:
            kept.append(running[name])
        else:
            log.note_removed(name)
    return schema.model_copy(update={"applications": [*schema.applications, *kept]})


def declared_aliases(schema: ServeDeploySchema) -> Mapping[str, Mapping[str, float]]:
    """Return what the routers of a config say of each alias."""
    found: dict[str, Mapping[str, float]] = {}
    for app in schema.applications:
        if app.import_path != ROUTER:
            continue
        for deployment in app.deployments:
            config = deployment.user_config
            if isinstance(config, Mapping):
                found |= config.get("aliases", {})
    return found
