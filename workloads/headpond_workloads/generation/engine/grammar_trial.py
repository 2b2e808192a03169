"""Trying grammars in a process of their own, before they are compiled among all requests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event, Lock, Timer
from typing import cast
from weakref import finalize

from headpond.engine import Json
from headpond.errors import EngineFailed, Overloaded
from headpond_workloads.generation.engine import grammar_child
from headpond_workloads.generation.engine.apart import (
    end_child,
    module_command,
    module_environment,
)

_WALL_S = 20.0
"""After this a trial is given up, however little it may have been able to compute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a trial found.

    Attributes:
        refusal: Why the grammar can't be held, or None.
        size_bytes: About what it takes.
    """

    refusal: str | None
    size_bytes: int = 0


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

    def check(self, grammar: str) -> Verdict:
        """Try a grammar, after those that are tried already.

        Raises:
            EngineFailed: It can't be tried on this machine.
            Overloaded: The machine had no time for it.
        """
        with self._lock:
            return self._ask(self._running(), grammar)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            try:
                self._child = subprocess.Popen(  # noqa: S603 - our own module
                    module_command(grammar_child.__name__),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=module_environment(),
                )
            except OSError as error:
                raise EngineFailed(f"no process to try grammars in: {error.strerror}") from error
            finalize(self, end_child, self._child)
            _write(self._child, dict(self._setup))
        return self._child

    def _ask(self, child: subprocess.Popen[bytes], grammar: str) -> Verdict:
        late = Event()

        def give_up() -> None:
            late.set()
            child.kill()

        timer = Timer(_WALL_S, give_up)
        timer.start()
        try:
            _write(child, grammar)
            line = child.stdout.readline() if child.stdout is not None else b""
        except OSError:
            line = b""
        finally:
            timer.cancel()
        if line:
            answer: dict[str, Json] = json.loads(line)
            return Verdict(
                refusal=cast("str | None", answer["refusal"]),
                size_bytes=cast("int", answer["bytes"]),
            )
        end_child(child)
        if late.is_set():
            raise Overloaded("no time to try the form of the output", retry_after_s=_WALL_S)
        return Verdict(refusal="it takes too much to follow")


def _write(child: subprocess.Popen[bytes], value: Json) -> None:
    if child.stdin is not None:
        child.stdin.write(json.dumps(value).encode() + b"\n")
        child.stdin.flush()
