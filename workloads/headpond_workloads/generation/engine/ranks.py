"""The processes of the other ranks, as rank 0 has them: started, watched, ended together."""

from __future__ import annotations

import os
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict
from torch._C._distributed_c10d import TCPStore

from headpond.errors import BundleError, WorkerLost
from headpond_workloads.generation.engine.apart import module_command, module_environment
from headpond_workloads.generation.engine.rank_group import HOST, Command, RankGroup

_CHILD = "headpond_workloads.generation.engine.rank_child"
_POLL_S = 0.05


class RankTask(BaseModel):
    """What another rank has to know to be there: its place, and the model.

    Attributes:
        rank: Its number, from 1.
        ranks: How many there are.
        port: Of rank 0's store.
        folder: The model's files.
        architecture: The name of the model's class.
        dtype: What it computes in.
        device: The kind of its device.
        threads: Compute threads.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int
    ranks: int
    port: int
    folder: Path
    architecture: str
    dtype: str
    device: Literal["cpu", "cuda"]
    threads: int


class Ranks:
    """All ranks but this process, which is rank 0.

    They end with it, however it ends: each has a pipe from it, and ends where the pipe does.
    When one ends they all do, since none can compute without the others.
    """

    def __init__(self, task: RankTask) -> None:
        """Start ranks 1 and up, and wait until all have met.

        Args:
            task: What rank 1 gets; `port` is filled in.

        Raises:
            BundleError: One of them ended before.
        """
        store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        self._children = [
            _start(task.model_copy(update={"rank": rank, "port": store.port}))
            for rank in range(1, task.ranks)
        ]
        self._ended = threading.Event()
        self._finalizer: weakref.finalize[..., Ranks] = weakref.finalize(self, _end, self._children)
        self._meet(store, task.ranks)
        self._group = RankGroup(store, rank=0, ranks=task.ranks, device=task.device)
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _leave, self._children, self._group)
        for child in self._children:
            arguments = (child, self._ended, self._children)
            threading.Thread(target=_watch, args=arguments, daemon=True).start()

    @property
    def lost(self) -> bool:
        """Whether one has ended, and so all have."""
        return self._ended.is_set()

    def tell(self, command: Command) -> None:
        """Send all of them a command; called in `together`."""
        self._group.tell(command)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Compute what the other ranks compute, too.

        Whatever fails here has left the ranks at different places, and they are lost.

        Raises:
            WorkerLost: A rank has ended, now or before.
        """
        if self.lost:
            raise WorkerLost
        whole = False
        try:
            yield
            whole = True
        except RuntimeError as error:  # of torch: a connection, or memory, is lacking
            raise WorkerLost from error
        finally:
            if not whole:
                self._ended.set()
                _end(self._children)

    def close(self) -> None:
        """End them, and this process's place among them."""
        self._finalizer()

    def _meet(self, store: TCPStore, ranks: int) -> None:
        """Wait until each has reached the store: those of them that can't start say why."""
        wanted = [ready_key(rank) for rank in range(1, ranks)]
        while not store.check(wanted):
            if any(child.poll() is not None for child in self._children):
                self._finalizer()
                raise BundleError("a rank of the model could not be started; its log says why")
            time.sleep(_POLL_S)


def ready_key(rank: int) -> str:
    """Return the name under which a rank says that it is there."""
    return f"ready-{rank}"


Child = subprocess.Popen[bytes]


def _start(task: RankTask) -> Child:
    child = subprocess.Popen(  # noqa: S603 - our own module
        module_command(_CHILD),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**module_environment(), "LOCAL_RANK": str(task.rank)},
    )
    # The pipe stays open as long as this process lives; the other end reads until it closes.
    os.write(_input_of(child), f"{task.model_dump_json()}\n".encode())
    return child


def _input_of(child: Child) -> int:
    if child.stdin is None:
        raise ValueError("the process has no pipe")
    return child.stdin.fileno()


def _watch(child: Child, ended: threading.Event, all_of_them: Sequence[Child]) -> None:
    child.wait()
    ended.set()
    _end(all_of_them)


def _end(children: Sequence[Child]) -> None:
    for child in children:
        child.kill()


def _leave(children: Sequence[Child], group: RankGroup) -> None:
    _end(children)
    for child in children:
        child.wait()
        if child.stdin is not None:
            child.stdin.close()
    group.leave()
