"""All sessions of one process: how many there may be, and who comes back to which."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from headpond.errors import DeadlineExceeded, NotReady, Overloaded, RateLimited, WorkerLost
from headpond.http.errors import SessionNotFound
from headpond.http.line import NORMAL, POLICY, RESTART, Line
from headpond.http.session import Session
from headpond.settings import SessionLimits

_RETRY_AFTER_S = 5.0


class Sessions:
    """Keeps sessions while their clients are there, and for a while when they were cut off.

    Where there are as many as there may be, a new one takes the place of the one whose
    client has been away for longest.
    """

    def __init__(self, limits: SessionLimits) -> None:
        """Start without sessions, within these limits."""
        self.limits = limits
        self.ended: Counter[str] = Counter()
        self.resumed = 0
        self._sessions: dict[str, Session] = {}
        self._away: dict[Session, asyncio.TimerHandle] = {}
        self._ends: dict[Session, asyncio.TimerHandle] = {}
        self._releasing: set[asyncio.Task[None]] = set()
        self._draining = False

    @property
    def counts(self) -> Mapping[str, int]:
        """How many there are, by state: with a client, or without."""
        away = len(self._away)
        return {"connected": len(self._sessions) - away, "away": away}

    def make_room(self, tenant: str) -> None:
        """Make sure that the tenant may have one more session.

        Raises:
            NotReady: The process is stopping.
            RateLimited: The tenant has as many as it may.
            Overloaded: There are as many as there may be.
        """
        if self._draining:
            raise NotReady("The server is stopping.", retry_after_s=_RETRY_AFTER_S)
        limits = self.limits
        own = [session for session in self._sessions.values() if session.owner[0] == tenant]
        if len(own) >= limits.per_tenant and not self._evict(tenant):
            raise RateLimited(
                f"There are {limits.per_tenant} sessions already.", retry_after_s=_RETRY_AFTER_S
            )
        if len(self._sessions) >= limits.in_all and not (self._evict(tenant) or self._evict()):
            raise Overloaded("There are too many sessions.", retry_after_s=_RETRY_AFTER_S)

    def give_way(self, model: str) -> bool:
        """Let the one go whose client has been away for longest, of those a model hears.

        A place that is kept for somebody who may come back is of more use to who is there.
        Says whether there was one; its place is free soon after.
        """
        for session in self._away:
            if session.model == model:
                session.end(NORMAL, "", "evicted")
                return True
        return False

    def add(self, session: Session, longest_s: float) -> None:
        """Keep a session that begins now, for so long at most."""
        self._sessions[session.identifier] = session
        timer = asyncio.get_running_loop().call_later(longest_s, self._outlived, session)
        self._ends[session] = timer

    def find(self, identifier: str, owner: tuple[str, str]) -> Session:
        """Return the session of this name and owner.

        Raises:
            SessionNotFound: There is none, or it is somebody else's, or over.
        """
        session = self._sessions.get(identifier)
        if session is None or session.owner != owner:
            raise SessionNotFound
        return session

    def resume(self, session: Session, line: Line, last: int) -> None:
        """Go on with a client that came back and has every message up to that number.

        Raises:
            InvalidRequest: Nothing of that number was said.
            SessionNotFound: What it has missed is not kept any more.
        """
        session.resume(line, last)
        self.resumed += 1
        timer = self._away.pop(session, None)
        if timer is not None:
            timer.cancel()

    def leave(self, session: Session, line: Line, code: int | None) -> None:
        """Note that the connection of a line is gone, with a close code if one came.

        Who closes as usual won't come back; who goes away (a page that is loaded again) may.
        """
        if session.over or not session.leave(line):
            return
        if code == NORMAL:
            session.end(NORMAL, "", "closed")
        elif code == RESTART or self._draining or not self.limits.resume_s:
            session.end(RESTART, "", "dropped")
        else:
            self._away[session] = asyncio.get_running_loop().call_later(
                self.limits.resume_s, session.end, NORMAL, "", "expired"
            )

    def gone(self, session: Session, why: str) -> None:
        """Forget a session that is over, and see that all it held is released."""
        self.ended[why] += 1
        self._sessions.pop(session.identifier, None)
        for timers in (self._away, self._ends):
            timer = timers.pop(session, None)
            if timer is not None:
                timer.cancel()
        releasing = asyncio.create_task(session.released())
        self._releasing.add(releasing)
        releasing.add_done_callback(self._releasing.discard)

    async def drain(self) -> None:
        """Tell every client that the server stops, end all sessions and take no new ones."""
        self._draining = True
        for session in list(self._sessions.values()):
            lost = WorkerLost("The server is stopping; the session can be resumed elsewhere.")
            session.dismiss(lost, RESTART, "the server is stopping", "drained")
        await asyncio.gather(*self._releasing)

    def _outlived(self, session: Session) -> None:
        error = DeadlineExceeded("The session has lasted as long as it may.")
        session.dismiss(error, POLICY, error.message, "outlived")

    def _evict(self, tenant: str | None = None) -> bool:
        """End the session that has been away for longest, of a tenant or of all."""
        for session in self._away:
            if tenant is None or session.owner[0] == tenant:
                session.end(NORMAL, "", "evicted")
                return True
        return False
