"""The settings of a realtime session: changed piece by piece, and what they mean."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue, ValidationError

from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.http.errors import invalid_request
from headpond_workloads.speech.items import Encoding, Endpointing, Format, Listening
from headpond_workloads.speech.schema_realtime import (
    G711_RATE_HZ,
    AudioInput,
    SessionEnvelope,
    SessionSettings,
)

Fields = Mapping[str, JsonValue]

_INPUT = "session.audio.input"
MODEL_PARAM = f"{_INPUT}.transcription.model"
_OLD_FIELDS = (
    ("input_audio_transcription", "transcription"),
    ("input_audio_noise_reduction", "noise_reduction"),
    ("turn_detection", "turn_detection"),
)
_OLD_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
_ENCODINGS = {"audio/pcmu": Encoding.ULAW, "audio/pcma": Encoding.ALAW}


def updated(settings: SessionSettings, changes: Fields) -> SessionSettings:
    """Return settings with some of them changed, at any depth.

    An object that names another `type` replaces the one it had, as the fields of different
    types have nothing to do with each other.

    Raises:
        InvalidRequest: A change makes no sense; names its path, from `session` on.
        UnsupportedParameter: It asks for what no model here does.
    """
    whole = {"session": _merged(settings.model_dump(mode="json"), changes)}
    try:
        found = SessionEnvelope.model_validate(whole).session
    except ValidationError as error:
        refusal = invalid_request(error, json.dumps(whole).encode())
    else:
        _refuse_unsupported(found)
        return found
    raise refusal


def refuse_beta(session: Fields) -> None:
    """Check that `session.update` does not speak as the beta's update did.

    Raises:
        InvalidRequest: It does; names the field, and the one to use.
    """
    for old, new in (*_OLD_FIELDS, ("input_audio_format", "format")):
        if old in session:
            raise InvalidRequest(
                f"{old} is a field of the beta; it is audio.input.{new} now",
                param=f"session.{old}",
            )


def from_beta(session: Fields) -> Fields:
    """Return what `transcription_session.update` of the beta says, in today's words."""
    audio = {new: session[old] for old, new in _OLD_FIELDS if old in session}
    written = session.get("input_audio_format")
    if isinstance(written, str):
        audio["format"] = {"type": _OLD_FORMATS.get(written, written)}
    elif written is not None:
        audio["format"] = {"type": written}
    kept = {name: session[name] for name in ("include", "audio", "type") if name in session}
    return {"audio": {"input": audio}, **kept}


def format_of(settings: SessionSettings) -> Format:
    """Return how the sound is written."""
    written = _input(settings).format
    return Format(
        encoding=_ENCODINGS.get(written.type) or Encoding(written.encoding or Encoding.PCM16),
        rate_hz=written.rate or G711_RATE_HZ,
        channels=written.channels or 1,
    )


def listening_of(settings: SessionSettings) -> Listening:
    """Return what the recogniser is told; times of words are always wanted."""
    sound = _input(settings)
    turns = sound.turn_detection
    endpointing = None
    if turns is not None:
        endpointing = Endpointing(
            threshold=turns.threshold,
            prefix_padding_ms=turns.prefix_padding_ms,
            silence_ms=turns.silence_duration_ms,
        )
    return Listening(
        language=sound.transcription.language,
        prompt=sound.transcription.prompt,
        endpointing=endpointing,
        words=True,
    )


def model_of(settings: SessionSettings) -> str | None:
    """Return the model that is asked for, if any is."""
    return _input(settings).transcription.model


def check_fixed(before: SessionSettings, after: SessionSettings) -> None:
    """Check that nothing changes which has to stay while sound is heard.

    Raises:
        InvalidRequest: Something does; names it.
    """
    if format_of(before) != format_of(after):
        raise InvalidRequest("the format is fixed by the first sound", param=f"{_INPUT}.format")
    if model_of(before) != model_of(after):
        raise InvalidRequest("the model is fixed by the first sound", param=MODEL_PARAM)


def _input(settings: SessionSettings) -> AudioInput:
    return settings.audio.input


def _merged(before: Fields, changes: Fields) -> dict[str, JsonValue]:
    merged = dict(before)
    for name, value in changes.items():
        old = merged.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            renamed = value.get("type", old.get("type")) != old.get("type")
            merged[name] = value if renamed else _merged(old, value)
        else:
            merged[name] = value
    return merged


def _refuse_unsupported(settings: SessionSettings) -> None:
    sound = _input(settings)
    turns, told = sound.turn_detection, sound.transcription
    asked: dict[str, object] = {
        f"{_INPUT}.noise_reduction": sound.noise_reduction,
        f"{_INPUT}.transcription.delay": told.delay,
        f"{_INPUT}.transcription.keywords": told.keywords,
        f"{_INPUT}.transcription.languages": told.languages,
        f"{_INPUT}.turn_detection.idle_timeout_ms": turns and turns.idle_timeout_ms,
        f"{_INPUT}.turn_detection.eagerness": turns and turns.eagerness,
        "session.include": settings.include,
    }
    for param, value in asked.items():
        if value is not None and value != ():
            name = param.rpartition(".")[2]
            raise UnsupportedParameter(f"{name} is not supported", param=param)
    if turns is not None and turns.type != "server_vad":
        raise UnsupportedParameter(
            "turns are detected by server_vad alone", param=f"{_INPUT}.turn_detection.type"
        )
