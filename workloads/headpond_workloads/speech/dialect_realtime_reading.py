"""A client's messages over `/v1/realtime`, read and checked."""

from __future__ import annotations

import binascii
from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from headpond.errors import InvalidRequest, PayloadTooLarge
from headpond.http.errors import invalid_request
from headpond_workloads.speech.schema_realtime import (
    MAX_EVENT_ID_CHARACTERS,
    Append,
    ClearBuffer,
    ClientEvent,
    CommitBuffer,
    SessionUpdate,
)

MAX_APPEND_BYTES = 15 * 2**20

_EVENTS: Mapping[str, type[ClientEvent]] = {
    "input_audio_buffer.append": Append,
    "input_audio_buffer.commit": CommitBuffer,
    "input_audio_buffer.clear": ClearBuffer,
    "session.update": SessionUpdate,
    "transcription_session.update": SessionUpdate,
}


class Message:
    """One message, as far as it can be read.

    Attributes:
        event_id: What the client calls it, for errors about it.
    """

    def __init__(self, text: str | bytes) -> None:
        """Read a message.

        Raises:
            InvalidRequest: It is no JSON object.
        """
        if isinstance(text, bytes):
            raise InvalidRequest("events are texts; send sound by input_audio_buffer.append")
        try:
            fields = from_json(text, allow_inf_nan=False)
        except ValueError:
            raise InvalidRequest("the message is not valid JSON") from None
        if not isinstance(fields, dict):
            raise InvalidRequest("the message must be a JSON object")
        self._fields: dict[str, object] = fields
        named = fields.get("event_id")
        is_name = isinstance(named, str) and len(named) <= MAX_EVENT_ID_CHARACTERS
        self.event_id: str | None = named if is_name else None

    def event(self) -> ClientEvent:
        """Return the event.

        Raises:
            InvalidRequest: It is none that a client can send, or a field is wrong; names it.
        """
        kind = self._fields.get("type")
        model = _EVENTS.get(kind) if isinstance(kind, str) else None
        if model is None:
            raise InvalidRequest(f"type must be one of {', '.join(_EVENTS)}", param="type")
        try:
            return model.model_validate(self._fields)
        except ValidationError as error:
            refusal = invalid_request(error, to_json(self._fields))
        raise refusal


def sound(audio: str) -> bytes:
    """Return the bytes that are written in base64.

    Raises:
        InvalidRequest: The text is no strict base64.
        PayloadTooLarge: It is too long.
    """
    try:
        content = binascii.a2b_base64(audio, strict_mode=True)
    except ValueError:  # binascii's own error is one, and so is text beyond ASCII
        raise InvalidRequest("audio is not valid base64", param="audio") from None
    if len(content) > MAX_APPEND_BYTES:
        raise PayloadTooLarge(f"an append holds at most {MAX_APPEND_BYTES} bytes", param="audio")
    return content
