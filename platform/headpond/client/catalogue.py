"""What a server has to offer: its models and its workloads."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, JsonValue

from headpond.client.async_transport import AsyncTransport
from headpond.client.transport import Transport
from headpond.models_wire import MODELS_PATH, Model, ModelList

WORKLOADS_PATH = "/v1/workloads"


class _Declared(BaseModel):
    """A part of a record; `model_extra` holds what it declares besides."""

    model_config = ConfigDict(extra="allow")


class WorkloadRoute(_Declared):
    """A route.

    Attributes:
        method: Of HTTP; `WEBSOCKET` where a WebSocket is opened.
        path: Below the base URL.
        example: A body that works with any model of the workload, `model` left out.
        chunk: The type of a stream's events; None where nothing is streamed.
    """

    method: str
    path: str
    example: Mapping[str, JsonValue] = {}
    chunk: str | None = None


class WorkloadPhase(_Declared):
    """A phase of every call."""

    name: str
    kind: str


class LatencyBounds(_Declared):
    """Seconds within which work counts; None for no bound."""

    first_output_s: float | None = None
    gap_s: float | None = None
    total_s: float | None = None


class WorkloadThroughput(_Declared):
    """A rate in which the workload is judged: a unit of its work, and when it counts."""

    unit: str
    bounds: LatencyBounds


class Workload(_Declared):
    """One workload's record.

    Attributes:
        routes: The first one is what the workload is for.
        phases: In order.
        throughput: Rates; the first one counts most.
    """

    name: str
    summary: str
    routes: tuple[WorkloadRoute, ...] = ()
    phases: tuple[WorkloadPhase, ...] = ()
    throughput: tuple[WorkloadThroughput, ...] = ()


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
