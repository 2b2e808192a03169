"""A call that was admitted, and its events on their way to the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from headpond.call import Answer, Done, Ended, Failed, Output
from headpond.dialect import Exchange, Heading, ItemEvent, parted, rendered
from headpond.errors import DeadlineExceeded, HeadpondError, WorkerLost
from headpond.http.exchange import whole_events
from headpond.http.metrics import HttpMetrics
from headpond.http.reply import Reply
from headpond.http.requests import first_failure
from headpond.http.sse import Pulse, comment, frame
from headpond.http.timing import complete, server_timing
from headpond.http.watch import Watch
from headpond.units import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One admitted call and where its answer goes.

    Attributes:
        answer: The call in progress.
        exchange: Its dialect.
        heading: What the dialect repeats in every body.
        reply: Where the answer goes.
        watch: To be told when all is computed.
        workload: The record's name.
        phases: The record's phases, in order.
        metrics: Where phases are counted.
        began_s: When the request came.
        submitted_s: When it was submitted to the backend.
        due_s: When all of the answer has to be there.
    """

    answer: Answer
    exchange: Exchange
    heading: Heading
    reply: Reply
    watch: Watch
    workload: str
    phases: tuple[str, ...]
    metrics: HttpMetrics
    began_s: float
    submitted_s: float
    due_s: float

    async def whole(self) -> HeadpondError | None:
        """Collect every event, then send one body.

        Returns:
            The first error of an item, where the dialect has a place for it.

        Raises:
            HeadpondError: The call, or an item for which the dialect has no place, failed.
            DeadlineExceeded: All is computed, but too late.
        """
        items, ended = await whole_events(self.answer)
        self.watch.rest()
        body = rendered(self.exchange.body(self.heading, items, ended.work))
        timing = (b"server-timing", self._account(ended).encode())
        headers = [_work(ended.work), timing]
        headers += [(name.encode(), value.encode()) for name, value in body.headers]
        self._check_time()
        await self.reply.whole(200, body.content, headers, body.media_type.encode())
        return first_failure(items)

    async def stream(self, keep_alive_s: float) -> HeadpondError | None:
        """Send events as they come; those of one step are one chunk.

        Nothing is sent before the first events are there, so that what fails before is
        still an error status.

        Returns:
            The first error of an item, where the dialect has a place for it.

        Raises:
            HeadpondError: The call failed.
            DeadlineExceeded: A step that began in time gave its events too late.
        """
        writer = self.exchange.stream(self.heading)
        pulse: Pulse | None = None
        ended: Ended | None = None
        failed: HeadpondError | None = None
        try:
            async for batch in self.answer.batches():
                if not batch:
                    continue
                self._check_time()
                items, ended = parted(batch)
                failed = failed or first_failure(items)
                if pulse is None:
                    _refuse_failed_start(items)
                chunk = frame(writer.write(items))
                if ended is not None:
                    chunk += frame(writer.close(ended.work)) + comment(
                        f"server-timing: {self._account(ended)}"
                    )
                if pulse is None:
                    await self.reply.stream([_work(self.answer.accepted.work)])
                    pulse = Pulse(self.reply.keep_alive, keep_alive_s)
                if ended is not None:
                    self.watch.rest()
                    await self.reply.last(chunk)
                elif chunk:
                    await self.reply.more(chunk)
                    pulse.defer()
            if ended is None:
                raise WorkerLost
        finally:
            if pulse is not None:
                pulse.stop()
        return failed

    def _check_time(self) -> None:
        """Refuse what comes late: the loop looks between steps, and so before the last one."""
        if perf_counter() > self.due_s:
            raise DeadlineExceeded

    def _account(self, ended: Ended) -> str:
        """Count where the time went, and return it as `server-timing`."""
        spent = complete(
            self.phases,
            ended.phases_s,
            before_s=self.submitted_s - self.began_s,
            total_s=perf_counter() - self.began_s,
        )
        self.metrics.observe(self.workload, spent)
        return server_timing(spent)


def _work(work: Work) -> tuple[bytes, bytes]:
    return (b"x-headpond-work", work.header().encode())


def _refuse_failed_start(events: Sequence[ItemEvent]) -> None:
    """Raise the first failure of a call that has given nothing else."""
    if any(isinstance(event, Output | Done) for event in events):
        return
    for event in events:
        if isinstance(event, Failed):
            raise event.error
