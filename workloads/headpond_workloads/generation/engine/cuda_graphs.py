"""CUDA graphs: a step's kernels, launched all at once.

A step of decoding is hundreds of small kernels, and starting them one by one takes the host
longer than computing them takes the device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch

from headpond.errors import BundleError
from headpond_workloads.generation.engine.options import Graphs

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

PARAM = "execution.options.cuda_graphs"

Compute = Callable[[], None]
"""Reads its inputs from fixed memory, and writes its outputs to fixed memory."""

_WARM_UPS = 3
"""Runs before the capture: libraries allocate, and kernels are compiled, in the first ones."""


class Recorder(Protocol):
    """Makes computing the same thing again cheap."""

    def record(self, compute: Compute) -> Compute:
        """Return what computes the same as `compute`, from and to the same memory."""
        ...


class CudaGraphs:
    """Records CUDA graphs, which share one pool of memory for what lies between layers.

    So only one of them may run at a time, and its outputs must not lie in the pool.
    """

    def __init__(self, device: torch.device) -> None:
        """Record what runs on `device`."""
        self._device = device

    def record(self, compute: Compute) -> Compute:
        """Warm up on a side stream, capture there, and return what replays the graph.

        Raises:
            BundleError: It can't be captured: it waits for the device or looks at its results.
        """
        try:
            with torch.cuda.device(self._device):
                return self._capture(compute).replay
        except RuntimeError as error:
            raise BundleError(
                f"this model's step can't be captured, set cuda_graphs: false ({error})",
                param=PARAM,
            ) from error

    def _capture(self, compute: Compute) -> torch.cuda.CUDAGraph:
        stream, current = self._stream, torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                compute()
        current.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream):
            compute()
        return graph

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream()  # type: ignore[no-untyped-call]

    @cached_property
    def _pool(self) -> _POOL_HANDLE:
        return torch.cuda.graph_pool_handle()


def recorder_of(wanted: Graphs, device: torch.device) -> Recorder | None:
    """Return what records steps on a device, or None where each is computed anew.

    Args:
        wanted: The bundle's option; `auto` records where that can be.
        device: Where the model is.

    Raises:
        BundleError: Graphs are insisted on, and the device has none.
    """
    if device.type == "cuda":
        return CudaGraphs(device) if wanted else None
    if wanted is True:
        raise BundleError(
            f"cuda_graphs: true needs a CUDA device, and the deployment's is {device.type}",
            param=PARAM,
        )
    return None
