"""The routes that a workload's record adds to be served over the protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pydantic import BaseModel

from headpond.dialect import Incoming, Route
from headpond_workloads.oip.about import AboutExchange, config, metadata, ready
from headpond_workloads.oip.adapter import TensorAdapter, TensorModel
from headpond_workloads.oip.errors import oip_error
from headpond_workloads.oip.infer import InferExchange
from headpond_workloads.oip.naming import Served
from headpond_workloads.oip.schema import (
    MODEL_PATH,
    VERSION_PATH,
    InferRequest,
    InferResponse,
    ModelConfig,
    ModelMetadata,
    ModelReady,
)


def oip_routes(adapter: TensorAdapter) -> tuple[Route, ...]:
    """Return the routes of a workload whose models take and give tensors.

    Several workloads may have them: the model in the path decides.

    Args:
        adapter: How the workload's items and outputs are tensors.
    """
    return tuple(
        route
        for path, whose in ((MODEL_PATH, "a model"), (VERSION_PATH, "one version of a model"))
        for route in (
            _infer(adapter, path, whose),
            _described(adapter, path, f"Show the tensors of {whose}", metadata, ModelMetadata),
            _described(
                adapter,
                f"{path}/config",
                f"Show the tensors of {whose}, as Triton does",
                config,
                ModelConfig,
            ),
            _ready(adapter, path, whose),
        )
    )


def _infer(adapter: TensorAdapter, path: str, whose: str) -> Route:
    return Route(
        method="POST",
        path=f"{path}/infer",
        summary=f"Infer with {whose}, tensors in and out (Open Inference Protocol v2).",
        request=InferRequest,
        response=InferResponse,
        example=adapter.example,
        read=partial(InferExchange, adapter),
        fail=oip_error,
    )


def _described(
    adapter: TensorAdapter,
    path: str,
    summary: str,
    tell: Callable[[Served, TensorModel], BaseModel],
    response: type[BaseModel],
) -> Route:
    def write(served: Served, payload: object) -> BaseModel:
        return tell(served, adapter.describe(payload))

    def read(incoming: Incoming) -> AboutExchange:
        return AboutExchange(adapter.about, write, incoming)

    return Route.get(
        path,
        f"{summary} (Open Inference Protocol v2).",
        exchange=read,
        response=response,
        fail=oip_error,
    )


def _ready(adapter: TensorAdapter, path: str, whose: str) -> Route:
    return Route.get(
        f"{path}/ready",
        f"Tell whether {whose} can serve (Open Inference Protocol v2).",
        exchange=partial(AboutExchange, adapter.about, ready),
        response=ModelReady,
        fail=oip_error,
    )
