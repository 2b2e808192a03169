"""The process that has vLLM: started, asked for steps, watched, ended."""

from __future__ import annotations

import json
import logging
import selectors
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import TypeAdapter

from headpond.errors import BundleError, WorkerLost
from headpond_workloads.generation.engine.apart import end_child
from headpond_workloads.generation.engine.vllm.wire import Ask, Reply, Start, Started

logger = logging.getLogger(__name__)

Child = subprocess.Popen[bytes]
Answer = TypeVar("Answer", Started, Reply)

_STARTED, _REPLY = TypeAdapter(Started), TypeAdapter(Reply)


class VllmProcess:
    """One process, which ends with this one: it ends where the pipe to it does."""

    patience_s = 50.0
    """A step that takes longer never ends. Less than the 60 s after which a deployment gives its
    engine up and fails the calls: those that a process is lost with can be sent again."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], start: Start
    ) -> None:
        """Start it, and wait until it has loaded the model.

        Args:
            command: Runs the child.
            environment: Of the child.
            start: What it is to load.

        Raises:
            BundleError: It can't be started, or ended before.
        """
        try:
            self._child: Child = subprocess.Popen(  # noqa: S603 - our own child
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        except OSError as error:
            raise BundleError(
                f"vLLM can't be run by {command[0]}: {error.strerror}",
                param="execution.options.python",
            ) from error
        self._finalizer = weakref.finalize(self, end_child, self._child)
        try:
            self.started = self._exchange(start, _STARTED, None)
        except WorkerLost as error:
            self.close()
            raise BundleError(
                f"vLLM, run by {command[0]}, ended while it loaded the model; the log says why",
                param="execution.options.engine",
            ) from error
        logger.info("vLLM %s has loaded the model", self.started["version"])

    @property
    def lost(self) -> bool:
        """Whether it has ended; safe to ask from any thread."""
        return self._child.poll() is not None

    def step(self, ask: Ask) -> Reply:
        """Let it compute a step.

        Raises:
            WorkerLost: It has ended, or stood still and was ended.
        """
        return self._exchange(ask, _REPLY, self.patience_s)

    def close(self) -> None:
        """End it."""
        self._finalizer()

    def _exchange(
        self, question: Start | Ask, answer: TypeAdapter[Answer], patience_s: float | None
    ) -> Answer:
        child = self._child
        if child.stdin is None or child.stdout is None:
            raise WorkerLost
        try:
            child.stdin.write(f"{json.dumps(question)}\n".encode())
            child.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(child.stdout, selectors.EVENT_READ)
                line = child.stdout.readline() if selector.select(patience_s) else b""
            return answer.validate_json(line)
        except (OSError, ValueError) as error:
            # It ended, stands still, or says what nobody understands: it is of no use.
            child.kill()
            status = child.wait()
            logger.error("vLLM's process is lost (%s), status %s", type(error).__name__, status)
            raise WorkerLost from error
