"""The file of a batch, written from the bodies of its requests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO

from pydantic_core import PydanticSerializationError, to_json

from headpond.errors import InvalidRequest

_IN_MEMORY_BYTES = 2**22

Bodies = Iterable[Mapping[str, object]] | Mapping[str, Mapping[str, object]]
"""Bodies in order, or by the identifiers of their results."""


@contextmanager
def requests_file(endpoint: str, bodies: Bodies) -> Iterator[BinaryIO]:
    """Write a line for each body to a file that goes away; a small one is in memory.

    Raises:
        InvalidRequest: A body holds what JSON cannot express.
    """
    pairs = bodies.items() if isinstance(bodies, Mapping) else enumerate(bodies)
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as file:
        for identifier, body in pairs:
            request = {
                "custom_id": str(identifier),
                "method": "POST",
                "url": endpoint,
                "body": body,
            }
            try:
                file.write(to_json(request) + b"\n")
            except PydanticSerializationError as error:
                text = "The request holds a value that JSON cannot express."
                raise InvalidRequest(text, param=str(identifier)) from error
        yield file  # type: ignore[misc] # typeshed has it as a file of its own kind
