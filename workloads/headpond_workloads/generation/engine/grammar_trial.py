"""Trying grammars in a process of their own, before they are compiled among all requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from threading import Lock, Timer
from weakref import finalize

from headpond.engine import Json
from headpond.errors import EngineFailed, InvalidRequest
from headpond_workloads.generation.engine import grammar_child

_WALL_S = 60.0
"""After this a trial is given up, however little it may have been able to compute."""


class GrammarTrial:
    """Refuses grammars that take too much; safe to call from several threads.

    A few lines may take a compiler any memory and time, or its stack. The process is started
    with the first grammar, and anew after one was too much.
    """

    def __init__(self, setup: Mapping[str, Json]) -> None:
        """Keep what the process needs: the tokenizer's JSON, vocabulary size, and end tokens."""
        self._setup = setup
        self._lock = Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def check(self, grammar: str, param: str) -> int:
        """Try a grammar and return about how many bytes it takes.

        Raises:
            InvalidRequest: It is none, or takes too much; names the field.
            EngineFailed: It can't be tried on this machine.
        """
        with self._lock:
            answer = self._ask(self._running(), grammar)
        if answer is None:
            raise InvalidRequest("it can't be held: it takes too much to follow", param=param)
        if answer["refusal"] is not None:
            raise InvalidRequest(f"it can't be held: {answer['refusal']}", param=param)
        return int(answer["bytes"])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            try:
                self._child = subprocess.Popen(  # noqa: S603 - our own module
                    [sys.executable, "-m", grammar_child.__name__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                )
            except OSError as error:
                raise EngineFailed(f"no process to try grammars in: {error.strerror}") from error
            finalize(self, _end, self._child)
            _write(self._child, dict(self._setup))
        return self._child

    def _ask(self, child: subprocess.Popen[bytes], grammar: str) -> dict[str, str | int] | None:
        """Return the process's answer, or None when it ended over it."""
        timer = Timer(_WALL_S, child.kill)
        timer.start()
        try:
            _write(child, grammar)
            line = child.stdout.readline() if child.stdout is not None else b""
        except OSError:
            line = b""
        finally:
            timer.cancel()
        if not line:
            _end(child)
            return None
        answer: dict[str, str | int] = json.loads(line)
        return answer


def _write(child: subprocess.Popen[bytes], value: Json) -> None:
    if child.stdin is not None:
        child.stdin.write(json.dumps(value).encode() + b"\n")
        child.stdin.flush()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue  # what was not written any more
