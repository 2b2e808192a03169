"""Conversations: what a dialect says over a WebSocket, as effects without any I/O.

A conversation is a pure state machine. It hears what the client sends and what happens to
its one call, and answers each with effects that the HTTP layer carries out: calls and input
in order, one after the other; what is said at once, in the order in which it was returned,
never waiting for input that the call has yet to take in; a hang-up at once, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headpond.dialect import Ask, Heading, ItemEvent
from headpond.errors import HeadpondError
from headpond.units import Work


def any_model(model: str) -> None:
    """Take every model for one that is served: who knows better says so in the handshake."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Handshake:
    """How a client came.

    Attributes:
        session_id: What the session is called, for the client to resume it by.
        path: Parameters of the route's path.
        query: Parameters of the query; the last one of a name.
        headers: By lower-case name, as ASGI has them.
        resume_s: How long the session is kept for a client whose socket dropped.
        check_model: Raises `HeadpondError` for a model that the caller can't have, as far as
            that is known before a call; so a name is refused where it is said.
    """

    session_id: str
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    resume_s: float = 0.0
    check_model: Callable[[str], None] = any_model


@dataclass(frozen=True, slots=True)
class Say:
    """Send a message to the client: a line of JSON.

    Attributes:
        text: The message.
        number: Its place among the messages of the session, from 1; a client that comes
            back names the last one it has. None for what is not said again to such a one.
    """

    text: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """Begin the call; what is fed from here on goes to it. Its one item is fed."""

    ask: Ask


@dataclass(frozen=True, slots=True)
class Feed:
    """Hand input to the call. While too much of it waits, the client is not heard."""

    payload: object
    units: int = 0


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the socket, with a code of RFC 6455 and a reason; ends the session."""

    code: int
    reason: str


Effect = Say | Open | Feed | HangUp


class Conversation(Protocol):
    """One session in one dialect."""

    def begin(self) -> Sequence[Effect]:
        """Return what is said first."""
        ...

    def hear(self, message: str | bytes, now_s: float) -> Sequence[Effect]:
        """Take in a message of the client. What is wrong with it is said, never raised."""
        ...

    def opened(self, heading: Heading) -> Sequence[Effect]:
        """Take in that the call was admitted."""
        ...

    def given(self, events: Sequence[ItemEvent]) -> Sequence[Effect]:
        """Take in what a step of the engine gave."""
        ...

    def ended(self, work: Work) -> Sequence[Effect]:
        """Take in that the call is over and went well; another one may be opened."""
        ...

    def failed(self, error: HeadpondError) -> Sequence[Effect]:
        """Take in that the call was refused, or ended with an error; another may be opened.

        Also called when the session is ended from outside, whether or not there is a call.
        """
        ...

    def behind(self, waiting_units: int, now_s: float) -> Sequence[Effect]:
        """Take in how much input waits for the call; asked about once a second.

        Also asked while none runs, or is yet to be admitted: nothing waits for it then.
        """
        ...

    def resumed(self) -> Sequence[Effect]:
        """Return what is said to a client that came back, after what it has missed."""
        ...
