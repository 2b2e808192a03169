"""The process of a rank above 0: computes what rank 0 computes, with its own share."""

from __future__ import annotations

import os
import sys
import threading

import torch
from torch._C._distributed_c10d import TCPStore

from headpond_workloads.generation.engine.forward import Forward
from headpond_workloads.generation.engine.plain import plain_logits
from headpond_workloads.generation.engine.rank_group import HOST, Make, RankGroup
from headpond_workloads.generation.engine.ranks import RankTask, ready_key
from headpond_workloads.generation.engine.torch_forward import forward_over
from headpond_workloads.generation.engine.weights import load_share


def _end_with_rank_0() -> None:
    """Read the pipe from rank 0 until it closes: then there is no rank 0."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(0)


def _read_task() -> RankTask:
    line = bytearray()
    while not line.endswith(b"\n"):
        read = os.read(sys.stdin.fileno(), 1)
        if not read:
            sys.exit(0)
        line += read
    return RankTask.model_validate_json(line)


def _serve(task: RankTask) -> None:
    torch.set_num_threads(task.threads)
    store = TCPStore(HOST, task.port, is_master=False)
    store.set(ready_key(task.rank), "")
    group = RankGroup(store, rank=task.rank, ranks=task.ranks, device=task.device)
    model = load_share(task.folder, task.architecture, task.dtype, task.ranks)
    plain_logits(model)
    forward: Forward | None = None
    while True:
        command = group.listen()
        if isinstance(command, Make):
            forward = None  # its memory goes before the next one's comes
            forward = forward_over(
                model,
                command.shape,
                command.blocks,
                attention=command.attention,
                max_blocks=command.max_blocks,
            )
        elif forward is not None:
            forward.cache.clear(command.cleared)
            forward.runner.forward(command.spans)


if __name__ == "__main__":
    _task = _read_task()
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    _serve(_task)
