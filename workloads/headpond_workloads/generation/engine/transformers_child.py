"""The process that has torch and transformers for as long as one task takes; see `apart`."""

from __future__ import annotations

import sys

from headpond.errors import BundleError
from headpond_workloads.generation.engine.apart import TASK, Done, ReadTask, Refused, UnpackTask
from headpond_workloads.generation.engine.transformers_reading import (
    read_folder,
    read_outline,
)
from headpond_workloads.generation.engine.weights import unpack


def _answer(task: ReadTask | UnpackTask) -> Done | Refused:
    try:
        if isinstance(task, UnpackTask):
            unpack(task.gguf, task.folder, task.dtype)
            return Done(text="")
        read = read_folder if task.weights else read_outline
        reading = read(task.folder, task.architecture, task.dtype)
    except BundleError as error:
        return Refused(message=str(error), param=error.param)
    return Done(text=reading.model_dump_json())


if __name__ == "__main__":
    answer = _answer(TASK.validate_json(sys.stdin.read()))
    sys.stdout.write(f"\n{answer.model_dump_json()}\n")  # behind whatever a library printed
