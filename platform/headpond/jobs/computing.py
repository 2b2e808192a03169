"""Computing a shard: its records through the job's one bundle, many at once.

- What is refused because much else is to be done is asked again later, at low priority.
- A call that fails as a whole is asked for again by halves, so that each record fails alone.
- Records whose replica was lost with them are suspects: each is asked for again with no
  other of the shard beside it, and is poison when that is lost too, and again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from headpond.call import Priority
from headpond.errors import HeadpondError, ModelNotFound, Overloaded, RateLimited, WorkerLost
from headpond.jobs.asking import Asker, Question
from headpond.jobs.claim import Orders
from headpond.jobs.records import Record, ResultLine, poisoned, stopped
from headpond.units import Work

_WAIT_S = 0.2
_WAIT_MOST_S = 5.0
_POISON_LOSSES = 2
"""So often a record may be lost alone, after it was lost in company."""
_LEAST_LEFT_S = 0.1
_OUTPUT_BYTES = 64 * 2**20
"""A shard whose results are larger hands in what it has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How a worker runs a shard.

    Attributes:
        in_flight: Records that are asked for at once.
        shard_s: After so long what is done is handed in, and others may take the rest.
        turn_s: The same while a smaller job waits for its turn.
        patience_s: After so long without any answer the rest is given back.
    """

    in_flight: int = 64
    shard_s: float = 20.0
    turn_s: float = 3.0
    patience_s: float = 30.0


@dataclass
class Tally:
    """What the records of a shard have come to, so far."""

    completed: int = 0
    failed: int = 0
    bytes: int = 0
    usage: Work = field(default_factory=Work)

    def add(self, line: ResultLine) -> None:
        """Count one more record."""
        self.completed += line.completed
        self.failed += not line.completed
        self.bytes += len(line.line)
        self.usage += line.work


class ShardRun:
    """One run of a shard's records, until all are done or it has to stop.

    Attributes:
        tally: What is done so far.
        waits_for: Why it stopped early, when nothing answered.
    """

    def __init__(
        self,
        records: Sequence[Record],
        asker: Asker,
        orders: Orders,
        pace: Pace,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Get ready to compute `records`, under `orders`; `clock` is monotonic seconds."""
        self._records = list(records)
        self._asker = asker
        self._orders = orders
        self._pace = pace
        self._clock = clock
        self._sleep = sleep
        self._started = 0
        self._began_s = self._answered_s = self._ordered_s = clock()
        self._resting = False
        self._suspects: list[Question] = []
        self._lines: dict[int, ResultLine] = {}
        self._lanes: set[asyncio.Task[None]] = set()
        self.tally = Tally()
        self.waits_for: str | None = None

    def obey(self, orders: Orders) -> None:
        """Take new orders."""
        self._orders, self._ordered_s = orders, self._clock()
        if orders.stop is not None:
            self._drop()

    def rest(self) -> None:
        """Start nothing more; what is under way is waited for."""
        self._resting = True

    def give_tail(self) -> list[Record]:
        """Give up the second half of the records that were not started."""
        middle = (self._started + len(self._records) + 1) // 2
        tail = self._records[middle:]
        del self._records[middle:]
        return tail

    @property
    def records(self) -> Sequence[Record]:
        """The records that are this shard's still."""
        return self._records

    async def run(self) -> None:
        """Compute until all records are done, or it is told to stop."""
        count = max(1, self._pace.in_flight // self._asker.group_records)
        await self._run_lanes([self._lane() for _ in range(count)])
        await self._run_lanes([self._examine()])
        if self._orders.stop is not None:
            for record in self._records:
                if record.index not in self._lines:
                    self._keep(record, stopped(record, self._orders.stop))

    def done(self) -> list[ResultLine]:
        """Return the lines of the first records, up to one that has none."""
        done = []
        for record in self._records:
            if (line := self._lines.get(record.index)) is None:
                break
            done.append(line)
        return done

    async def _run_lanes(self, lanes: Sequence[Coroutine[None, None, None]]) -> None:
        self._lanes = {asyncio.create_task(lane) for lane in lanes}
        try:
            await asyncio.wait(self._lanes)
        finally:
            self._drop()
        for lane in self._lanes:
            if not lane.cancelled():
                lane.result()

    def _drop(self) -> None:
        for lane in self._lanes:
            lane.cancel()

    @property
    def _stopped(self) -> bool:
        """Whether nothing is to be asked again."""
        return self._resting or self._orders.stop is not None or self.waits_for is not None

    @property
    def _full(self) -> bool:
        """Whether there is enough to hand in."""
        pace = self._pace
        most_s = min(pace.turn_s, pace.shard_s) if self._orders.make_room else pace.shard_s
        over = self._clock() - self._began_s > most_s
        return (over and bool(self._lines)) or self.tally.bytes > _OUTPUT_BYTES

    async def _lane(self) -> None:
        """Ask for one group of records after the other."""
        while self._started < len(self._records) and not (self._stopped or self._full):
            stop = self._started + self._asker.group_records
            group = self._records[self._started : stop]
            self._started += len(group)
            questions = []
            for record in group:
                read = self._asker.read(record)
                if isinstance(read, ResultLine):
                    self._keep(record, read)
                else:
                    questions.append(read)
            for call in self._asker.calls(questions):
                self._suspects += await self._settle(call)

    async def _examine(self) -> None:
        """Ask for the suspects, each with none of the others beside it."""
        for suspect in self._suspects:
            losses = 0
            while losses < _POISON_LOSSES and not self._stopped:
                if not await self._settle([suspect]):
                    break
                losses += 1
            if losses == _POISON_LOSSES:
                self._keep(suspect.record, poisoned(suspect.record, losses + 1))

    async def _settle(self, questions: Sequence[Question]) -> list[Question]:
        """Ask until each question has a line, or can't be asked now; return those lost."""
        lost: list[Question] = []
        tries = 0
        while questions:
            again: list[Question] = []
            reason = HeadpondError()
            for question, outcome in zip(questions, await self._ask(questions), strict=True):
                if isinstance(outcome, ResultLine):
                    self._keep(question.record, outcome)
                elif isinstance(outcome, WorkerLost):
                    lost.append(question)
                elif _passes(outcome):
                    again.append(question)
                    reason = outcome
                else:
                    line = self._asker.refuse(question.record, question.request_id, outcome)
                    self._keep(question.record, line)
            if again and not await self._may_ask_again(reason, tries):
                break
            questions, tries = again, tries + 1
        return lost

    async def _ask(self, questions: Sequence[Question]) -> list[ResultLine | HeadpondError]:
        """Send one call; what is refused as a whole is sent again by halves."""
        priority = Priority.NORMAL if self._orders.hurry else Priority.BATCH
        left_s = self._orders.left_s - (self._clock() - self._ordered_s)
        try:
            return await self._asker.ask(questions, priority, max(left_s, _LEAST_LEFT_S))
        except HeadpondError as error:
            if len(questions) == 1 or isinstance(error, WorkerLost) or _passes(error):
                return [error for _ in questions]
        middle = len(questions) // 2
        return [*await self._ask(questions[:middle]), *await self._ask(questions[middle:])]

    async def _may_ask_again(self, reason: HeadpondError, tries: int) -> bool:
        """Wait before the next try; say whether there is to be one."""
        if self._clock() - self._answered_s > self._pace.patience_s:
            self.waits_for = reason.message
        if self._stopped:
            return False
        wait_s = max(reason.retry_after_s or 0.0, _WAIT_S * 2.0 ** min(tries, 8))
        await self._sleep(min(wait_s, _WAIT_MOST_S) * random.uniform(0.5, 1.5))  # noqa: S311
        return not self._stopped

    def _keep(self, record: Record, line: ResultLine) -> None:
        self._lines[record.index] = line
        self._answered_s = self._clock()
        self.tally.add(line)


def _passes(error: HeadpondError) -> bool:
    """Say whether the same question may be answered later: the bundle is served, or has room."""
    return isinstance(error, Overloaded | RateLimited | ModelNotFound)
