"""A conversation for tests: what a client says comes back, over a call that is fed.

A client's message is a line of JSON: `{"open": "<model>"}`, `{"say": "<text>"}`,
`{"end": true}`, `{"bye": "<reason>"}`; or bytes, which are a text to say. Every event has a
`number`, but for those about how much waits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from headpond.call import Failed, Output
from headpond.conversation import Effect, Feed, Handshake, HangUp, Open, Say
from headpond.dialect import Ask, Heading, ItemEvent, Route
from headpond.errors import HeadpondError
from headpond.record import WorkloadRecord
from headpond.testing.listening import Letters, Listener, Silence, listening_record
from headpond.units import Work

TALK_PATH = "/v1/talk"


def talking_record(*, ahead: int = 20) -> WorkloadRecord:
    """Return the listening workload with a WebSocket to talk to it."""
    talk = Route.socket(
        TALK_PATH, "Hear what was said", conversation=TalkConversation, example={"say": "hello"}
    )
    return replace(listening_record(ahead=ahead), routes=(talk,))


class TalkConversation:
    """Repeats what it hears, by way of the engine."""

    def __init__(self, handshake: Handshake) -> None:
        """Begin with how the client came, whose model has to be there."""
        if "model" in handshake.query:
            handshake.check_model(handshake.query["model"])
        self.handshake = handshake
        self.number = 0

    def begin(self) -> Sequence[Effect]:
        """Greet."""
        return [self._say(session=self.handshake.session_id)]

    def hear(self, message: str | bytes, now_s: float) -> Sequence[Effect]:
        """Do what the client wants; a message that is no JSON is a fault of this dialect."""
        del now_s
        if isinstance(message, bytes):
            return [Feed(Letters(message.decode()), len(message))]
        asked = json.loads(message)
        if "open" in asked:
            return [Open(Ask(model=asked["open"], items=(Listener(live=True),)))]
        if "say" in asked:
            return [Feed(Letters(asked["say"]), len(asked["say"])), self._say(heard=asked["say"])]
        if "end" in asked:
            return [Feed(Silence(), 0)]
        if "bye" in asked:
            return [self._say(bye=True), HangUp(1000, asked["bye"])]
        return [self._say(error="what?")]

    def opened(self, heading: Heading) -> Sequence[Effect]:
        """Say what is talked to."""
        return [self._say(opened=heading.fingerprint)]

    def given(self, events: Sequence[ItemEvent]) -> Sequence[Effect]:
        """Say what came back."""
        said: list[Effect] = []
        for event in events:
            if isinstance(event, Output):
                said.append(self._say(given=event.payload))
            elif isinstance(event, Failed):
                said.append(self._say(failed=event.error.code))
        return said

    def ended(self, work: Work) -> Sequence[Effect]:
        """Say that it is over."""
        return [self._say(ended=dict(work))]

    def failed(self, error: HeadpondError) -> Sequence[Effect]:
        """Say why it is over."""
        return [self._say(error=error.code)]

    def behind(self, waiting_units: int, now_s: float) -> Sequence[Effect]:
        """Say how much waits, if anything does."""
        del now_s
        return [Say(json.dumps({"behind": waiting_units}))] if waiting_units else []

    def resumed(self) -> Sequence[Effect]:
        """Welcome back."""
        return [self._say(resumed=self.handshake.session_id)]

    def _say(self, **event: object) -> Say:
        self.number += 1
        return Say(json.dumps({"number": self.number, **event}), self.number)
