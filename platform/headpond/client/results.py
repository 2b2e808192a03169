"""What both clients of batches share: the body, the pace of looking, and result lines."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping

from pydantic import ValidationError

from headpond.client.errors import BatchFailed, ResponseInvalid
from headpond.client.wire import encode
from headpond.errors import DeadlineExceeded, InvalidRequest
from headpond.jobs_wire import Batch, BatchInput, BatchOutput, BatchRequest, BatchResult

_FIRST_S, _LONGEST_S = 0.25, 5.0


def batch_body(
    places: Mapping[str, str | BatchInput | BatchOutput | None],
    endpoint: str,
    completion_window: str,
    metadata: Mapping[str, str] | None,
    output_expires_after_s: int | None,
) -> bytes:
    """Return the body that asks for a batch over a file, or over a prefix.

    Args:
        places: `input_file_id`, or `input` and `output`, these by their URL or with more.
        endpoint: The route that every line's `url` names.
        completion_window: Hours or minutes.
        metadata: Pairs.
        output_expires_after_s: Seconds that its files are kept.

    Raises:
        InvalidRequest: Names the field at fault.
    """
    fields: dict[str, object] = {
        "endpoint": endpoint,
        "completion_window": completion_window,
    }
    for name, place in places.items():
        if isinstance(place, str):
            fields[name] = place if name == "input_file_id" else {"url": place}
        elif place is not None:
            fields[name] = place.model_dump(mode="json", exclude_unset=True)
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


def result_files(batch: Batch) -> list[str]:
    """Return the files that have a batch's results.

    Raises:
        InvalidRequest: It has none: it is one over a prefix.
    """
    if batch.output is not None:
        text = f"The results lie below {batch.output.url}, once `manifest.json` is there."
        raise InvalidRequest(text, param="output.url")
    return [each for each in (batch.output_file_id, batch.error_file_id) if each is not None]


def check_ran(batch: Batch) -> None:
    """Make sure that a batch has results.

    Raises:
        BatchFailed: It has none, as something was wrong with all of it.
    """
    if batch.status != "failed":
        return
    errors = () if batch.errors is None else batch.errors.data
    told = [each.message or each.code or "" for each in errors]
    raise BatchFailed("; ".join(told) or None)


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
