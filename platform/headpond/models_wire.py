"""Models on the wire, as OpenAI lists them: one shape for the server and its clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel

MODELS_PATH = "/v1/models"


class Model(BaseModel):
    """One model that can be asked for; the last three fields are additions to OpenAI's.

    Attributes:
        id: The name to ask for.
        created: Unix time at which its bundle was locked.
        workload: What it does; None from servers that are not Headpond.
        bundles: Every version behind the name, as `name@version+digest12`.
        limits: The bundle's limits, e.g. `{"context_tokens": 8192}`.
    """

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    workload: str | None = None
    bundles: tuple[str, ...] = ()
    limits: Mapping[str, int] = {}


class ModelList(BaseModel):
    """The models that an API key opens."""

    object: Literal["list"] = "list"
    data: tuple[Model, ...]
