"""A realtime conversation without a socket: events in, events and effects out."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from openai.types import realtime
from pydantic import BaseModel

from headpond.call import Output
from headpond.conversation import Effect, Feed, Handshake, HangUp, Open, Say
from headpond.dialect import Heading
from headpond.errors import HeadpondError
from headpond.units import Work
from headpond_workloads.speech.dialect_realtime import RealtimeConversation
from headpond_workloads.speech.items import Sound, Stream

HEADING = Heading(request_id="r-1", created_s=17, model="ears", fingerprint="m@1+abc")
MS = b"\0\0" * 24
"""One millisecond of the default format."""

_OURS = {
    "input_audio_buffer.acknowledged",
    "session.resumed",
    "transcription.behind",
}
_ITEM = "conversation.item.input_audio_transcription"
_TYPES: dict[str, type[BaseModel]] = {
    "session.created": realtime.SessionCreatedEvent,
    "session.updated": realtime.SessionUpdatedEvent,
    "input_audio_buffer.speech_started": realtime.InputAudioBufferSpeechStartedEvent,
    "input_audio_buffer.speech_stopped": realtime.InputAudioBufferSpeechStoppedEvent,
    "input_audio_buffer.committed": realtime.InputAudioBufferCommittedEvent,
    "input_audio_buffer.cleared": realtime.InputAudioBufferClearedEvent,
    "conversation.item.added": realtime.ConversationItemAdded,
    "conversation.item.done": realtime.ConversationItemDone,
    f"{_ITEM}.delta": realtime.ConversationItemInputAudioTranscriptionDeltaEvent,
    f"{_ITEM}.completed": realtime.ConversationItemInputAudioTranscriptionCompletedEvent,
    f"{_ITEM}.failed": realtime.ConversationItemInputAudioTranscriptionFailedEvent,
    "error": realtime.RealtimeErrorEvent,
}

Event = dict[str, Any]


class Talk:
    """Speaks as a client and answers as an engine; every event is checked by OpenAI's types.

    Attributes:
        now_s: The clock.
        said: What was said since it was last looked at.
        fed: The same of what was fed.
        opened: Every stream that was opened, with its model.
        hung_up: How the socket was closed, if it was.
    """

    def __init__(self, handshake: Handshake | None = None, /, **query: str) -> None:
        self.now_s = 100.0
        self.said: list[Event] = []
        self.fed: list[Feed] = []
        self.opened: list[tuple[str | None, Stream]] = []
        self.hung_up: HangUp | None = None
        self._numbers = 0
        handshake = handshake or Handshake(session_id="sess_1", query=query, resume_s=30.0)
        self.conversation = RealtimeConversation(handshake)
        self._take(self.conversation.begin())

    def send(self, kind: str, **fields: object) -> list[Event]:
        """Send an event and return what is said."""
        return self.raw(json.dumps({"type": kind, **fields}))

    def raw(self, message: str | bytes) -> list[Event]:
        """Send a message as it is."""
        self._take(self.conversation.hear(message, self.now_s))
        return self.events()

    def append(self, content: bytes = MS * 20, **fields: object) -> list[Event]:
        """Send sound."""
        audio = b64encode(content).decode()
        return self.send("input_audio_buffer.append", audio=audio, **fields)

    def update(self, **audio_input: object) -> list[Event]:
        """Change settings of the sound that comes in."""
        session = {"type": "transcription", "audio": {"input": audio_input}}
        return self.send("session.update", session=session)

    def admit(self) -> None:
        """Admit the call."""
        self._take(self.conversation.opened(HEADING))

    def give(self, *payloads: object) -> list[Event]:
        """Give outputs in one step and return what is said."""
        self._take(self.conversation.given([Output(0, payload) for payload in payloads]))
        return self.events()

    def fail(self, error: HeadpondError) -> list[Event]:
        """End the call with an error."""
        self._take(self.conversation.failed(error))
        return self.events()

    def end(self) -> list[Event]:
        """End the call well."""
        self._take(self.conversation.ended(Work(audio_ms=1)))
        return self.events()

    def tick(self, waiting_ms: int = 0) -> list[Event]:
        """Let the conversation look at the clock."""
        self._take(self.conversation.behind(waiting_ms, self.now_s))
        return self.events()

    def resume(self) -> list[Event]:
        """Come back."""
        self._take(self.conversation.resumed())
        return self.events()

    def events(self) -> list[Event]:
        """Return what was said since the last time."""
        said, self.said = self.said, []
        return said

    def heard(self) -> list[object]:
        """Return what was fed since the last time, sound joined."""
        fed, self.fed = self.fed, []
        inputs: list[object] = []
        for feed in fed:
            last = inputs[-1] if inputs else None
            if isinstance(feed.payload, Sound) and isinstance(last, Sound):
                inputs[-1] = Sound(last.content + feed.payload.content)
            else:
                inputs.append(feed.payload)
        return inputs

    def sound(self) -> bytes:
        """Return the sound that was fed since the last time."""
        return b"".join(each.content for each in self.heard() if isinstance(each, Sound))

    def _take(self, effects: Sequence[Effect]) -> None:
        assert self.hung_up is None, "nothing is said after the end"
        for effect in effects:
            if isinstance(effect, Say):
                self.said.append(self._checked(effect))
            elif isinstance(effect, Open):
                (stream,) = effect.ask.items
                assert isinstance(stream, Stream)
                self.opened.append((effect.ask.model, stream))
            elif isinstance(effect, Feed):
                self.fed.append(effect)
            else:
                self.hung_up = effect

    def _checked(self, said: Say) -> Event:
        event: Event = json.loads(said.text)
        self._numbers += 1
        assert said.number == self._numbers
        assert event["event_id"] == f"event_{self._numbers}"
        if event["type"] not in _OURS:
            _TYPES[event["type"]].model_validate(_as_openai(said.text))
        return event


def _as_openai(text: str) -> Event:
    """Return an event as OpenAI would send it, whose PCM has but one rate."""
    event: Event = json.loads(text)
    session: Event = event.get("session", {})
    form = session.get("audio", {}).get("input", {}).get("format", {})
    if form.get("type") == "audio/pcm":
        form["rate"] = 24000
    return event
