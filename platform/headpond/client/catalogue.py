"""What a server has to offer: its models and its workloads."""

from __future__ import annotations

from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from headpond.client.async_transport import AsyncTransport
from headpond.client.transport import Transport
from headpond.models_wire import MODELS_PATH, Model, ModelList

WORKLOADS_PATH = "/v1/workloads"


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
