"""Batches: begun, watched until they are over, and their results by record."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from uuid import uuid4

from headpond.client.addresses import at, queried
from headpond.client.files import Files
from headpond.client.options import CallOptions
from headpond.client.page import Page
from headpond.client.requests_file import Bodies, requests_file
from headpond.client.results import (
    Looks,
    batch_body,
    check_ran,
    lines,
    parsed,
    result_files,
)
from headpond.client.transport import Transport
from headpond.client.upload import OnProgress
from headpond.jobs_wire import (
    BATCH_PATH,
    BATCHES_PATH,
    CANCEL_PATH,
    CONTENT_PATH,
    IDEMPOTENCY_KEY,
    Batch,
    BatchInput,
    BatchList,
    BatchOutput,
    BatchResult,
)


class Batches:
    """The batches of a tenant."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    def create(
        self,
        *,
        input_file_id: str | None = None,
        input_url: str | BatchInput | None = None,
        output_url: str | BatchOutput | None = None,
        endpoint: str,
        completion_window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        output_expires_after_s: int | None = None,
        idempotency_key: str | None = None,
    ) -> Batch:
        """Begin a batch over an uploaded file, or over the objects below a prefix.

        Args:
            input_file_id: A file of the purpose `batch`.
            input_url: Instead of a file, a prefix that the server may read, with JSON lines;
                a `BatchInput` says more of it.
            output_url: With `input_url`, a prefix that has nothing yet, for the results; a
                `BatchOutput` says their format.
            endpoint: The route that every line's `url` names.
            completion_window: Hours or minutes until the deadline, `24h` or `90m`.
            metadata: At most 16 pairs; `on_invalid_line: skip` lets the good lines run.
            output_expires_after_s: Seconds that its files are kept.
            idempotency_key: The same request with the same key makes no second batch. Without
                one, only this call's own attempts are told apart.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = batch_body(
            {"input_file_id": input_file_id, "input": input_url, "output": output_url},
            endpoint,
            completion_window,
            metadata,
            output_expires_after_s,
        )
        options = CallOptions(extra_headers={IDEMPOTENCY_KEY: idempotency_key or uuid4().hex})
        return self._transport.post(BATCHES_PATH, body, Batch, options=options)

    def retrieve(self, batch_id: str) -> Batch:
        """Return a batch as it is now.

        Raises:
            NotFound: The tenant has no such batch.
        """
        return self._transport.get(at(BATCH_PATH, batch_id), Batch)

    def list(self, *, after: str | None = None, limit: int | None = None) -> Page[Batch]:
        """Return a page of batches, newest first; iterating goes on over all that follow.

        Args:
            after: The page begins behind this batch.
            limit: The most on a page.
        """
        path = queried(BATCHES_PATH, after=after, limit=limit)
        return Page(
            self._transport.get(path, BatchList), lambda last: self.list(after=last, limit=limit)
        )

    def cancel(self, batch_id: str) -> Batch:
        """Stop a batch; what is done is kept.

        Raises:
            NotFound: The tenant has no such batch.
        """
        return self._transport.post(at(CANCEL_PATH, batch_id), None, Batch)

    def wait(
        self,
        batch_id: str,
        *,
        timeout_s: float | None = None,
        poll_s: float | None = None,
        on_progress: Callable[[Batch], None] | None = None,
    ) -> Batch:
        """Return a batch when it is over: completed, failed, expired or cancelled.

        Args:
            batch_id: The batch.
            timeout_s: Seconds to wait for it; None for as long as it takes.
            poll_s: Seconds between two looks; from a quarter up to five when not said.
            on_progress: Told what each look has found.

        Raises:
            DeadlineExceeded: It is not over after `timeout_s`.
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        looks = Looks(timeout_s, poll_s)
        while True:
            batch = self.retrieve(batch_id)
            if on_progress is not None:
                on_progress(batch)
            if batch.over:
                return batch
            time.sleep(looks.next_s())

    def run(
        self,
        *,
        endpoint: str,
        bodies: Bodies,
        completion_window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        poll_s: float | None = None,
        on_upload: OnProgress | None = None,
        on_progress: Callable[[Batch], None] | None = None,
    ) -> Generator[BatchResult]:
        """Run bodies as a batch: upload them, wait, and yield what became of each.

        What interrupts the wait cancels the batch.

        Args:
            endpoint: The route of all bodies.
            bodies: JSON bodies, each with its `model`; in the results `custom_id` is the number
                of the body, from 0. A mapping has identifiers instead.
            completion_window: Hours or minutes until the deadline, `24h` or `90m`.
            metadata: At most 16 pairs.
            poll_s: Seconds between two looks; from a quarter up to five when not said.
            on_upload: Told how many bytes were sent, and of how many.
            on_progress: Told what each look has found.

        Raises:
            BatchFailed: The server could not run it; says why.
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        with requests_file(endpoint, bodies) as file:
            uploaded = Files(self._transport).create(
                file, filename="requests.jsonl", on_progress=on_upload
            )
        batch = self.create(
            input_file_id=uploaded.id,
            endpoint=endpoint,
            completion_window=completion_window,
            metadata=metadata,
        )
        try:
            batch = self.wait(batch.id, poll_s=poll_s, on_progress=on_progress)
        finally:
            if not batch.over:
                self.cancel(batch.id)
        check_ran(batch)
        yield from self.results(batch)

    def results(self, batch: Batch | str) -> Generator[BatchResult]:
        """Yield one result for each record, those that failed last; join by `custom_id`.

        Args:
            batch: One over a file that is over, or its identifier.

        Raises:
            InvalidRequest: It is one over a prefix: its results lie below its `output.url`.
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        found = self.retrieve(batch) if isinstance(batch, str) else batch
        for file_id in result_files(found):
            for line in lines(self._transport.content(at(CONTENT_PATH, file_id))):
                yield parsed(line)
