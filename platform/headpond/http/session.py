"""One conversation with its call, whichever WebSocket carries it at the moment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from headpond.call import Answer
from headpond.conversation import Conversation, Effect, Feed, HangUp, Open, Say
from headpond.dialect import Ask, Heading, parted
from headpond.errors import HeadpondError, WorkerLost
from headpond.http.line import FAULT, POLICY, Line
from headpond.http.replay import Replay

log = structlog.get_logger(__name__)

_TICK_S = 1.0
_LAST_WORDS_S = 1.0
_REPLAY_BYTES = 2**20

Submit = Callable[[Ask], Awaitable[tuple[Answer, Heading]]]
"""Admits a call for a conversation; raises `HeadpondError` when it is refused."""


class Session:
    """Carries out what a conversation wants; lives on while its client is away.

    What is said goes out at once. Input and new calls wait for each other in a queue of
    their own, so a call that takes no more for now holds up neither outputs nor a hang-up.
    """

    def __init__(
        self,
        identifier: str,
        owner: tuple[str, str],
        conversation: Conversation,
        submit: Submit,
        gone: Callable[[Session, str], None],
    ) -> None:
        """Keep a conversation that `begin` begins.

        Args:
            identifier: What it can be resumed by.
            owner: The tenant, and the path of the route; only they can resume it.
            conversation: What is said.
            submit: Admits its calls.
            gone: Told once that it is over, and why in a word.
        """
        self.identifier = identifier
        self.owner = owner
        self._conversation = conversation
        self._submit = submit
        self._gone = gone
        self._replay = Replay(_REPLAY_BYTES)
        self._line: Line | None = None
        self._answer: Answer | None = None
        self._listening: asyncio.Task[None] | None = None
        self._deaf = False
        self._todo: deque[Open | Feed] = deque()
        self._more = asyncio.Event()
        self._rested = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.over = False

    @property
    def busy(self) -> bool:
        """Whether what was heard is not taken in yet; nothing more should be heard then."""
        return bool(self._todo)

    @property
    def model(self) -> str | None:
        """The model of the call that runs, if one does."""
        return None if self._answer is None else self._answer.accepted.model

    def is_on(self, line: Line) -> bool:
        """Say whether this is the line it speaks on."""
        return self._line is line

    def begin(self, line: Line) -> None:
        """Begin the conversation with a client."""
        self._line = line
        self._spawn(self._work)
        self._spawn(self._tick)
        self._take(self._conversation.begin)

    def resume(self, line: Line, last: int) -> None:
        """Go on with a client that has every message up to that number, on no other line.

        Raises:
            InvalidRequest: Nothing of that number was said.
            SessionNotFound: What the client has missed is not kept any more.
        """
        missed = self._replay.after(last)
        if self._line is not None:
            self._line.cut(POLICY, "the session was resumed over another connection")
        self._line = line
        line.repeat(missed)
        self._take(self._conversation.resumed)

    def leave(self, line: Line) -> bool:
        """Go on without the client of a line; False when it was on another one already."""
        if self._line is not line:
            return False
        self._line = None
        return True

    def hear(self, message: str | bytes) -> None:
        """Take in a message; `busy` tells whether the call has yet to take it in, too."""
        self._take(partial(self._conversation.hear, message, self._loop.time()))

    async def rest(self) -> None:
        """Wait until it is not busy any more, or over."""
        while self._todo and not self.over:
            self._rested.clear()
            await self._rested.wait()

    def dismiss(self, error: HeadpondError, code: int, reason: str, why: str) -> None:
        """End it from outside; the conversation hears that as a failure, to say why."""
        self._take(partial(self._conversation.failed, error))
        self.end(code, reason, why)

    def end(self, code: int, reason: str, why: str) -> None:
        """Close the line with a code of RFC 6455 and let go of everything; safe to repeat.

        Args:
            code: The close code.
            reason: For the client.
            why: The same in a word, for the metrics.
        """
        if self.over:
            return
        self.over = True
        if self._line is not None:
            self._line.close(code, reason)
            self._line = None
        self._rested.set()
        for task in self._tasks:
            task.cancel()
        self._gone(self, why)

    async def released(self) -> None:
        """Return when nothing runs or is held for a session that is over."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._answer is not None:
            await self._answer.close()
            self._answer = None

    def _take(self, answered: Callable[[], Sequence[Effect]]) -> None:
        """Carry out what the conversation answers; an error in it, which is ours, ends it."""
        try:
            self._act(answered())
        except Exception:
            log.exception("session_fault", session=self.identifier, path=self.owner[1])
            self.end(FAULT, "internal error", "fault")

    def _act(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if self.over:
                return
            if isinstance(effect, Say):
                if effect.number is not None:
                    self._replay.keep(effect.number, effect.text)
                if self._line is not None:
                    self._line.say(effect.text)
            elif isinstance(effect, HangUp):
                self.end(effect.code, effect.reason, "hung_up")
            else:
                self._todo.append(effect)
                self._more.set()

    async def _work(self) -> None:
        """Carry out what has to wait, in order."""
        while True:
            while self._todo:
                effect = self._todo[0]
                await (self._open(effect.ask) if isinstance(effect, Open) else self._feed(effect))
                del self._todo[0]
            self._rested.set()
            self._more.clear()
            await self._more.wait()

    async def _open(self, ask: Ask) -> None:
        if self._answer is not None:
            raise RuntimeError("a conversation opened a call while one was running")
        try:
            answer, heading = await self._submit(ask)
        except HeadpondError as error:
            self._take(partial(self._conversation.failed, error))
            return
        self._answer, self._deaf = answer, False
        self._listening = self._spawn(partial(self._listen, answer))
        self._take(partial(self._conversation.opened, heading))

    async def _feed(self, effect: Feed) -> None:
        """Feed the call that runs; what comes for one that is over has nobody to take it."""
        answer = self._answer
        if answer is None or self._deaf:
            return
        try:
            await answer.feed(effect.payload, effect.units)
        except HeadpondError as error:
            self._deaf = True
            await self._give_up(answer, error)

    async def _give_up(self, answer: Answer, error: HeadpondError) -> None:
        """End a call that takes no more input, unless it is over: then its last events come."""
        if self._listening is None:
            return
        await asyncio.wait({self._listening}, timeout=_LAST_WORDS_S)
        if self._answer is answer:
            self._listening.cancel()
            await answer.close()
            self._answer = None
            self._take(partial(self._conversation.failed, error))

    async def _listen(self, answer: Answer) -> None:
        """Hand the conversation what a call gives, up to its end."""
        try:
            ended = None
            async for batch in answer.batches():
                items, ended = parted(batch)
                if items:
                    self._take(partial(self._conversation.given, items))
            if ended is None:
                raise WorkerLost
            last = partial(self._conversation.ended, ended.work)
        except HeadpondError as error:
            last = partial(self._conversation.failed, error)
        await answer.close()
        self._answer = None
        self._take(last)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now_s = self._loop.time()
            waiting_units = 0 if self._answer is None else self._answer.waiting_units
            self._take(partial(self._conversation.behind, waiting_units, now_s))

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:
            log.exception("session_fault", session=self.identifier, path=self.owner[1])
            self.end(FAULT, "internal error", "fault")
