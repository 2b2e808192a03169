"""Asking a job's one bundle for records: several in one call, each with its own outcome."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headpond.batching import Formed
from headpond.call import Backend, Call, Done, Priority
from headpond.dialect import Ask, Exchange, Heading, Incoming, ItemEvent, rendered
from headpond.errors import (
    HeadpondError,
    InvalidRequest,
    NotReady,
    PayloadTooLarge,
    UnsupportedParameter,
)
from headpond.http.errors import error_answer
from headpond.http.exchange import read_exchange, whole_events
from headpond.jobs.endpoints import BatchEndpoint
from headpond.jobs.job import Job
from headpond.jobs.records import Record, ResultLine, answered, new_request_id, refused
from headpond.units import Work

GROUP_RECORDS = 32
"""So many records go in one call, where they are batched in one forward anyway."""


@dataclass(frozen=True, slots=True)
class Question:
    """A record that was read: its request in its dialect, and what that asks."""

    record: Record
    request_id: str
    exchange: Exchange
    ask: Ask


class Asker:
    """Asks for the records of one job."""

    def __init__(self, job: Job, endpoint: BatchEndpoint, backend: Backend) -> None:
        """Ask `backend` for what a job's lines ask of its endpoint."""
        self._job = job
        self._bundle = job.bundle or ""
        self._endpoint = endpoint
        self._backend = backend

    @property
    def group_records(self) -> int:
        """How many records are asked for in one call.

        In a continuous loop one call holds up nobody, and none waits for the longest.
        """
        record = self._endpoint.record
        if not isinstance(record.batching, Formed):
            return 1
        return min(GROUP_RECORDS, record.request.max_items)

    def read(self, record: Record) -> Question | ResultLine:
        """Read a record's body as the endpoint would; one it refuses is answered."""
        request_id = new_request_id()
        try:
            if record.body is None:
                raise InvalidRequest("The body is nested too deep.")
            incoming = Incoming(body=record.body, content_type="application/json")
            if len(record.body) > self._endpoint.record.request.max_body_bytes:
                raise PayloadTooLarge
            exchange, ask = read_exchange(self._endpoint.route, incoming)
            if ask.stream:
                raise UnsupportedParameter("A batch does not stream.", param="stream")
        except HeadpondError as error:
            return self.refuse(record, request_id, error)
        return Question(record, request_id, exchange, ask)

    def refuse(self, record: Record, request_id: str, error: HeadpondError) -> ResultLine:
        """Return the line of a record that is refused with an error."""
        answer = error_answer(error, self._endpoint.route.fail)
        return refused(record, request_id, self._bundle, answer)

    def calls(self, questions: Sequence[Question]) -> Iterator[list[Question]]:
        """Part questions into those that can go in one call."""
        most = self._endpoint.record.request.max_items
        call: list[Question] = []
        for question in questions:
            items = sum(len(each.ask.items) for each in call) + len(question.ask.items)
            alone = question.ask.store is not None or any(each.ask.store for each in call)
            if call and (alone or items > most or len(call) == self.group_records):
                yield call
                call = []
            call.append(question)
        if call:
            yield call

    async def ask(
        self, questions: Sequence[Question], priority: Priority, left_s: float
    ) -> list[ResultLine | HeadpondError]:
        """Send one call; return each question's line, or the error of its own items.

        Args:
            questions: At least one, as `calls` parts them.
            priority: The class of the call.
            left_s: Seconds to the job's deadline.

        Raises:
            HeadpondError: The call as a whole was refused, or failed.
        """
        first = questions[0]
        answer = await self._backend.submit(
            Call(
                request_id=first.request_id,
                tenant=self._job.tenant,
                workload=self._endpoint.record.name,
                model=self._bundle,
                items=tuple(item for each in questions for item in each.ask.items),
                priority=priority,
                deadline_s=left_s,
                store=first.ask.store,
            )
        )
        try:
            if answer.accepted.bundle != self._bundle:
                raise NotReady(f"the bundle {self._bundle} is not served", retry_after_s=1.0)
            events, _ = await whole_events(answer)
        finally:
            await answer.close()
        split = _split(questions, events)
        return [self._line(question, own) for question, own in zip(questions, split, strict=True)]

    def _line(self, question: Question, events: Sequence[ItemEvent]) -> ResultLine | HeadpondError:
        work = Work()
        for event in events:
            if isinstance(event, Done):
                work += event.work
        heading = Heading(
            request_id=question.request_id,
            created_s=int(time.time()),
            model=self._job.model or self._bundle,
            fingerprint=self._bundle,
        )
        try:
            body = rendered(question.exchange.body(heading, events, work))
        except HeadpondError as error:
            return error
        return answered(question.record, question.request_id, self._bundle, body, work)


def _split(questions: Sequence[Question], events: Sequence[ItemEvent]) -> list[list[ItemEvent]]:
    """Return each question's own events, with items counted from its first."""
    owners = [
        (number, item)
        for number, question in enumerate(questions)
        for item in range(len(question.ask.items))
    ]
    split: list[list[ItemEvent]] = [[] for _ in questions]
    for event in events:
        number, item = owners[event.item]
        split[number].append(replace(event, item=item))
    return split
