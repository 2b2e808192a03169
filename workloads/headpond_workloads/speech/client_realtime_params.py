"""Keyword arguments of realtime sessions, and the settings they come to."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from headpond.client.options import CallOptions
from headpond.client.wire import encode
from headpond_workloads.speech.schema_realtime import PCM_RATE_HZ, SessionEnvelope


class TurnParams(TypedDict):
    """When an utterance ends by itself.

    Attributes:
        type: As OpenAI calls it.
        threshold: The least probability of speech that begins one, from 0 to 1.
        prefix_padding_ms: How much sound from before is kept.
        silence_duration_ms: How long it is silent before one has ended.
    """

    type: Literal["server_vad"]
    threshold: NotRequired[float]
    prefix_padding_ms: NotRequired[int]
    silence_duration_ms: NotRequired[int]


class RealtimeParams(CallOptions):
    """Keyword arguments of `connect`; None is the same as absent, but for `turn_detection`.

    Attributes:
        model: The alias of a model.
        rate_hz: Of the sound, 8,000 to 96,000; 24,000 when absent.
        language: The language spoken, as ISO 639 has it.
        prompt: Words that are likely to come.
        turn_detection: When an utterance ends by itself; None where `commit` says it.
    """

    model: str
    rate_hz: NotRequired[int | None]
    language: NotRequired[str | None]
    prompt: NotRequired[str | None]
    turn_detection: NotRequired[TurnParams | None]


_KNOWN = RealtimeParams.__required_keys__ | RealtimeParams.__optional_keys__


def query_of(params: RealtimeParams) -> dict[str, str]:
    """Return the query of the address."""
    return {"intent": "transcription", "model": params["model"]}


def rate_hz_of(params: RealtimeParams) -> int:
    """Return the rate of the sound."""
    return params.get("rate_hz") or PCM_RATE_HZ


def update_text(params: RealtimeParams) -> str:
    """Return the event that sets a session up, checked as the server will check it.

    Raises:
        InvalidRequest: Names the setting at fault.
        TypeError: A keyword argument is none that is known.
    """
    unknown = sorted(params.keys() - _KNOWN)
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    sound = {"type": "audio/pcm", "rate": rate_hz_of(params)}
    told = {name: value for name, value in params.items() if name in ("language", "prompt")}
    settings: dict[str, object] = {"format": sound}
    if told:
        settings["transcription"] = told
    if "turn_detection" in params:
        settings["turn_detection"] = params["turn_detection"]
    session = {"type": "transcription", "audio": {"input": settings}}
    extra = params.get("extra_body") or {}
    body = encode({"session": {**session, **extra}}, SessionEnvelope)
    return f'{{"type":"session.update",{body.decode()[1:]}'
