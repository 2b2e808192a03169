"""What a server has to offer: its models and its workloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from headpond.client.async_transport import AsyncTransport
from headpond.client.transport import Transport

MODELS_PATH = "/v1/models"
WORKLOADS_PATH = "/v1/workloads"


class Model(BaseModel):
    """One model that can be asked for.

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
    """The models that the API key opens."""

    object: Literal["list"] = "list"
    data: tuple[Model, ...]


class Workload(BaseModel):
    """One workload's record; `model_extra` holds what it declares besides."""

    model_config = ConfigDict(extra="allow")

    name: str
    summary: str


class WorkloadList(BaseModel):
    """The workloads that the API key opens."""

    data: tuple[Workload, ...]


class Models:
    """The models that can be asked for."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    def list(self) -> ModelList:
        """Return the models that the API key opens."""
        return self._transport.get(MODELS_PATH, ModelList)

    def retrieve(self, model: str) -> Model:
        """Return one model.

        Raises:
            ModelNotFound: There is none of this name.
        """
        return self._transport.get(_path(model), Model)


class AsyncModels:
    """The models that can be asked for."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    async def list(self) -> ModelList:
        """Return the models that the API key opens."""
        return await self._transport.get(MODELS_PATH, ModelList)

    async def retrieve(self, model: str) -> Model:
        """Return one model.

        Raises:
            ModelNotFound: There is none of this name.
        """
        return await self._transport.get(_path(model), Model)


def _path(model: str) -> str:
    return f"{MODELS_PATH}/{quote(model)}"
