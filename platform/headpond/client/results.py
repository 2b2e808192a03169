"""What both clients of batches share: the body, the pace of looking, and result lines."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping

from pydantic import ValidationError

from headpond.client.errors import ResponseInvalid
from headpond.client.wire import encode
from headpond.errors import DeadlineExceeded
from headpond.jobs_wire import BatchRequest, BatchResult

_FIRST_S, _LONGEST_S = 0.25, 5.0


def batch_body(
    input_file_id: str,
    endpoint: str,
    completion_window: str,
    metadata: Mapping[str, str] | None,
    output_expires_after_s: int | None,
) -> bytes:
    """Return the body that asks for a batch.

    Raises:
        InvalidRequest: Names the field at fault.
    """
    fields: dict[str, object] = {
        "input_file_id": input_file_id,
        "endpoint": endpoint,
        "completion_window": completion_window,
    }
    if metadata is not None:
        fields["metadata"] = dict(metadata)
    if output_expires_after_s is not None:
        expires = {"anchor": "created_at", "seconds": output_expires_after_s}
        fields["output_expires_after"] = expires
    return encode(fields, BatchRequest)


class Looks:
    """How long to wait before each look at a batch: longer and longer, unless said."""

    def __init__(self, timeout_s: float | None, poll_s: float | None) -> None:
        self._poll_s = poll_s
        self._wait_s = _FIRST_S
        self._ends_s = None if timeout_s is None else time.monotonic() + timeout_s

    def next_s(self) -> float:
        """Return the seconds until the next look.

        Raises:
            DeadlineExceeded: There is none.
        """
        wait_s = self._wait_s if self._poll_s is None else self._poll_s
        self._wait_s = min(self._wait_s * 1.5, _LONGEST_S)
        if self._ends_s is not None and time.monotonic() + wait_s > self._ends_s:
            raise DeadlineExceeded("The batch is not over in time.")
        return wait_s


def lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, and hold one block and one line of it at most."""
    begun = b""
    for block in blocks:
        *whole, begun = (begun + block).split(b"\n")
        yield from filter(None, whole)
    if begun:
        yield begun


async def async_lines(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a file, and hold one block and one line of it at most."""
    begun = b""
    async for block in blocks:
        *whole, begun = (begun + block).split(b"\n")
        for line in filter(None, whole):
            yield line
    if begun:
        yield begun


def parsed(line: bytes) -> BatchResult:
    """Return a line of an output or error file.

    Raises:
        ResponseInvalid: It is none.
    """
    try:
        return BatchResult.model_validate_json(line)
    except ValidationError:
        pass
    # Not chained: pydantic repeats the data it could not read.
    raise ResponseInvalid("A line of the batch's results is not what the API promises.")
