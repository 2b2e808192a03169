"""Backends that are fed: one that a test holds in its hands, and the real loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from headpond.call import Accepted, Answer, Call, Ended, Event, ModelCard
from headpond.errors import HeadpondError
from headpond.last_word import LastWord
from headpond.scheduling.loop import Loop, loop_for
from headpond.testing.listening import ListeningEngine
from headpond.testing.scripted import ScriptedBackend
from headpond.testing.talking import talking_record
from headpond.units import Work

BUNDLE = "ear@1+0123456789ab"
CARDS = tuple(
    ModelCard(name=name, workload="listening", bundles=(BUNDLE,), created_s=5, limits={})
    for name in ("ear", "other")
)
ACCEPTED = Accepted(bundle=BUNDLE, model="ear", work=Work(letters=9))


@dataclass(eq=False)
class HeldAnswer:
    """An answer that gives what the test says, and takes input while the test lets it."""

    accepted: Accepted = ACCEPTED
    fed: list[object] = field(default_factory=list)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: HeadpondError | None = None
    given: asyncio.Queue[Sequence[Event] | HeadpondError] = field(default_factory=asyncio.Queue)
    waiting_units: int = 0
    closed: bool = False
    last_word: LastWord = field(default_factory=LastWord)

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        while True:
            batch = await self.given.get()
            if isinstance(batch, HeadpondError):
                raise batch
            if isinstance(last := batch[-1], Ended):
                self.last_word.know(last.work)
                yield batch
                return
            yield batch

    async def feed(self, payload: object, units: int) -> None:
        await self.room.wait()
        if self.refusal is not None:
            raise self.refusal
        self.fed.append(payload)

    async def close(self) -> None:
        self.closed = True

    def when_over(self, told: Callable[[Work], None]) -> None:
        self.last_word.tell(told)


class HeldBackend(ScriptedBackend):
    """Answers every call with an answer of its own that the test holds."""

    answers: list[HeldAnswer]

    def __init__(self) -> None:
        super().__init__(accepted=ACCEPTED, cards=CARDS)
        self.answers = []

    async def submit(self, call: Call) -> Answer:
        await super().submit(call)
        self.answers.append(HeldAnswer())
        self.answers[-1].room.set()
        return self.answers[-1]


class LoopBackend(HeldBackend):
    """The real loop, with the engine that repeats what it hears."""

    def __init__(self, engine: ListeningEngine, ahead: int) -> None:
        super().__init__()
        record = talking_record(ahead=ahead)
        self.loop: Loop = loop_for(
            record,
            engine,
            record.bind({}, "uint8"),
            state_bytes=1_000,
            max_slots=8,
            bundle=BUNDLE,
            observer=lambda _: None,
        )

    @property
    def rests(self) -> bool:
        snapshot = self.loop.snapshot()
        return not (snapshot.running_slots or snapshot.queued_items)

    async def submit(self, call: Call) -> Answer:
        return await self.loop.submit(call)


@asynccontextmanager
async def looping(engine: ListeningEngine, *, ahead: int = 20) -> AsyncIterator[LoopBackend]:
    backend = LoopBackend(engine, ahead)
    backend.loop.start()
    try:
        yield backend
    finally:
        await backend.loop.stop(0.0)
