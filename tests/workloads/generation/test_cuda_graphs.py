"""What an execution's options choose, and how a graph is captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch

from headpond.engine import Json
from headpond.errors import BundleError
from headpond_workloads.generation.engine.cuda_graphs import CudaGraphs, recorder_of

if TYPE_CHECKING:
    from workloads.generation.conftest import Tiny

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 1)


def test_graphs_are_recorded_where_there_is_a_gpu() -> None:
    assert isinstance(recorder_of("auto", CUDA), CudaGraphs)
    assert isinstance(recorder_of(True, CUDA), CudaGraphs)
    assert recorder_of(False, CUDA) is None
    assert recorder_of("auto", CPU) is None
    assert recorder_of(False, CPU) is None


REFUSED: dict[str, tuple[dict[str, Json], str, str]] = {
    "graphs without a GPU": ({"cuda_graphs": True}, "needs a CUDA device", "cuda_graphs"),
    "no such attention": ({"attention": "flash"}, "'sdpa' or 'flex'", "attention"),
    "no such choice": ({"cuda_graphs": "always"}, "'auto', True or False", "cuda_graphs"),
    "a number": ({"cuda_graphs": 2}, "'auto', True or False", "cuda_graphs"),
    "native attention": (
        {"kernels": "native", "attention": "flex"},
        "kernels: native needs the native kernels, attention: flex",
        "",
    ),
    "quantized graphs": (
        {"quantization": "int8", "cuda_graphs": True},
        "quantization: int8 needs the native kernels, cuda_graphs: true",
        "",
    ),
    "the same in every batch": (
        {"determinism": "batch_invariant", "attention": "sdpa"},
        "determinism: batch_invariant needs the native kernels, attention: sdpa",
        "",
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_options_that_can_not_be_are_refused(tiny: Tiny, which: str) -> None:
    options, message, name = REFUSED[which]
    with pytest.raises(BundleError, match=message) as refusal:
        tiny.engine(blocks=64, **options)
    assert refusal.value.param == ".".join(filter(None, ["execution.options", name]))


class Cuda:
    """Stands in for `torch.cuda`, and writes down what is asked of it."""

    def __init__(self) -> None:
        self.events: list[object] = []

    class CUDAGraph:
        def replay(self) -> None: ...

    def device(self, device: torch.device) -> nullcontext[None]:
        self.events.append(device)
        return nullcontext()

    class Stream:
        def wait_stream(self, other: object) -> None: ...

    def current_stream(self) -> Stream:
        return self.Stream()

    def graph_pool_handle(self) -> tuple[int, int]:
        return (0, len(self.events))

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self.events.append(("warm up", stream))
        yield

    @contextmanager
    def graph(self, graph: CUDAGraph, *, pool: object, stream: Stream) -> Iterator[None]:
        self.events.append(("capture", stream, pool))
        yield


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    cuda = Cuda()
    for name in ("CUDAGraph", "Stream", "current_stream", "device", "graph", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(cuda, name))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", cuda.graph_pool_handle)
    return cuda


def test_graphs_are_warmed_up_and_share_a_pool_and_a_stream(cuda: Cuda) -> None:
    graphs = CudaGraphs(CUDA)
    computed: list[int] = []
    replays = [graphs.record(lambda: computed.append(len(cuda.events))) for _ in range(2)]
    assert len(set(replays)) == 2
    first, second = cuda.events[:3], cuda.events[3:]
    assert first == second
    assert first[2][2] is not None  # type: ignore[index]
    assert [each[0] for each in first[1:]] == ["warm up", "capture"]  # type: ignore[index]
    # Some runs before each capture, and one in it.
    assert computed.count(3) == computed.count(6) == 1
    assert computed.count(2) == computed.count(5) > 1


def test_what_can_not_be_captured_is_refused(cuda: Cuda) -> None:
    def compute() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(BundleError, match=r"cuda_graphs: false .*not permitted") as refusal:
        CudaGraphs(CUDA).record(compute)
    assert refusal.value.param == "execution.options.cuda_graphs"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_reads_and_writes_the_same_memory() -> None:
    graphs = CudaGraphs(torch.device("cuda", 0))
    given = torch.zeros(4, device="cuda:0")
    taken = [torch.zeros(4, device="cuda:0") for _ in range(2)]

    def compute(out: torch.Tensor, factor: int) -> None:
        out.copy_(given * factor)

    replays = [
        graphs.record(partial(compute, out, factor)) for factor, out in enumerate(taken, start=2)
    ]
    given.fill_(3.0)
    for replay in replays:
        replay()
    assert [out.tolist() for out in taken] == [[6.0] * 4, [9.0] * 4]
