"""Which bundle a job is computed by: chosen once, when it is made."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import dataclass

from headpond.call import Backend
from headpond.jobs.endpoints import BatchEndpoint
from headpond.jobs.objects import Objects

_LOOK_BYTES = 8 * 2**20
"""So much of a file is read for its first line; one that is longer names no model."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The model that a file's first line names, and the bundle it stands for now.

    No model means that the line names none, or can't be read; no bundle that there is no
    such model. Whoever reads the whole file tells what is wrong.
    """

    model: str | None
    bundle: str | None


def pin(line: bytes, endpoint: BatchEndpoint, backend: Backend, token: str) -> Pin:
    """Resolve the model that a job's input asks for, by its alias's weights.

    Args:
        line: The first of the input.
        endpoint: What the job asks; decides the model where a dialect names none.
        backend: Knows what each model stands for.
        token: The job's identifier: chooses, where an alias has several bundles.

    Raises:
        NotReady: The model is known, and nothing that serves it has answered yet.
    """
    named = model_named(line)
    model = named or backend.only_model(endpoint.record.name)
    if model is None or backend.workload_of(model) not in (None, endpoint.record.name):
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


async def first_line(objects: Objects, key: str) -> bytes:
    """Return the first line of an object that is not blank; nothing of one that is too long.

    Raises:
        ObjectsUnavailable: The object store failed for too long.
        NotFound: It has no such object.
    """
    seen = b""
    async with aclosing(objects.read(key)) as blocks:
        async for block in blocks:
            seen += block
            line, newline, _ = seen.lstrip().partition(b"\n")
            if newline:
                return line
            if len(seen) > _LOOK_BYTES:
                return b""
    return seen
