"""What takes torch and transformers, done in a process that ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from headpond.errors import BundleError

_CHILD = "headpond_workloads.generation.engine.transformers_child"


class _Task(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReadTask(_Task):
    """Read a bundle's folder; the answer is a `Reading` in JSON.

    Attributes:
        weights: Whether to load the weights; else `plain` and `decoder` are not known.
    """

    kind: Literal["read"] = "read"
    folder: Path
    architecture: str
    dtype: str
    weights: bool = True


class UnpackTask(_Task):
    """Unpack a GGUF file into a folder of safetensors; the answer is nothing."""

    kind: Literal["unpack"] = "unpack"
    gguf: Path
    folder: Path
    dtype: str


class Done(_Task):
    """The end of a task."""

    kind: Literal["done"] = "done"
    text: str


class Refused(_Task):
    """A task that can't be done; see `BundleError`."""

    kind: Literal["refused"] = "refused"
    message: str
    param: str | None


TASK: TypeAdapter[ReadTask | UnpackTask] = TypeAdapter(ReadTask | UnpackTask)
_ANSWER: TypeAdapter[Done | Refused] = TypeAdapter(Done | Refused)


def done_apart(task: ReadTask | UnpackTask) -> str:
    """Do a task in a process of its own and return its answer.

    Raises:
        BundleError: It can't be done; says why.
    """
    child = subprocess.run(  # noqa: S603 - our own module
        module_command(_CHILD),
        input=task.model_dump_json().encode(),
        capture_output=True,
        check=False,
        env=module_environment(),
    )
    if child.returncode:
        lines = child.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise BundleError(f"transformers can't read the bundle: {lines[-1]}", param="artifacts")
    answer = _ANSWER.validate_json(child.stdout.splitlines()[-1])
    if isinstance(answer, Refused):
        raise BundleError(answer.message, param=answer.param)
    return answer.text


def module_command(module: str) -> list[str]:
    """Return the command that runs a module of ours."""
    return [sys.executable, "-m", module]


def module_environment() -> Mapping[str, str]:
    """Return the environment in which it finds what this process finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def end_child(child: subprocess.Popen[bytes]) -> None:
    """Kill a process that is asked over pipes, and close them."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue  # what was not written any more
