"""Which bundle a job is computed by: chosen once, when it is made."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from headpond.call import Backend
from headpond.jobs.endpoints import BatchEndpoint
from headpond.jobs.objects import Objects

_LOOK_BYTES = 8 * 2**20
"""So much of a file is read for a line that names a model that is served."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The model of a file, and the bundle it stands for now.

    It is that of the first line that names one that is served, else of the first that names
    any. No model means that no line names one; no bundle that there is no such model. Whoever
    reads the whole file tells what is wrong.
    """

    model: str | None
    bundle: str | None


async def pin(
    lines: AsyncIterable[bytes], endpoint: BatchEndpoint, backend: Backend, token: str
) -> Pin:
    """Resolve the model that a job's input asks for, by its alias's weights.

    Args:
        lines: The first of the input.
        endpoint: What the job asks; decides the model where a dialect names none.
        backend: Knows what each model stands for.
        token: The job's identifier: chooses, where an alias has several bundles.

    Raises:
        NotReady: The model is known, and nothing that serves it has answered yet.
        ObjectsUnavailable: The object store failed for too long.
        ObjectLost: It has no such object.
    """
    workload = endpoint.record.name
    named = await _named(lines, lambda name: backend.workload_of(name) == workload)
    model = named or backend.only_model(workload)
    if model is None or backend.workload_of(model) not in (None, workload):
        return Pin(model, None)
    return Pin(model, backend.bundle_of(model, token))


def model_named(line: bytes) -> str | None:
    """Return the model that the body of an input line names, if it does."""
    try:
        body = json.loads(line)["body"]
        model = body.get("model")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return model if isinstance(model, str) else None


async def _named(lines: AsyncIterable[bytes], served: Callable[[str], bool]) -> str | None:
    """Return the model of the first line that names a served one, else the first named."""
    first: str | None = None
    async for line in lines:
        model = model_named(line)
        if model is not None and served(model):
            return model
        first = first or model
    return first


async def first_lines(objects: Objects, key: str) -> AsyncGenerator[bytes]:
    """Yield the lines of an object's first megabytes; one that goes on behind is left out.

    Raises:
        ObjectsUnavailable: The object store failed for too long.
        ObjectLost: It has no such object.
    """
    begun, size = b"", 0
    async with aclosing(objects.read(key)) as blocks:
        async for block in blocks:
            *whole, begun = (begun + block).split(b"\n")
            for line in whole:
                yield line
            size += len(block)
            if size > _LOOK_BYTES:
                return
    yield begun
