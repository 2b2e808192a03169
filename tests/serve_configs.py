"""Serve configs, as `headpond up` checks them before anything starts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

with warnings.catch_warnings():
    # Ray's own use of pydantic is deprecated; nobody here can change it.
    warnings.simplefilter("ignore")
    from ray.serve.config import AutoscalingConfig

    from headpond.local_ray import parse_config

if TYPE_CHECKING:
    from ray.serve.schema import ServeDeploySchema

AUTOSCALING_FIELDS = frozenset(AutoscalingConfig.model_fields)


def checked(config: Mapping[str, object]) -> ServeDeploySchema:
    """Return a config that Serve's schema and our own arguments' models take.

    Raises:
        InvalidRequest: Names the field at fault.
    """
    return parse_config(config)
