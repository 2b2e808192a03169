"""`POST /v1/audio/transcriptions`: forms and JSON in, every format and events out."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
)
from pydantic import ValidationError

from headpond.call import Done, Failed, Output
from headpond.dialect import Exchange, Heading, Incoming, ItemEvent, Raw, rendered
from headpond.errors import EngineFailed, InvalidRequest, UnsupportedParameter
from headpond.http.errors import invalid_request
from headpond.units import Work
from headpond_workloads.speech.dialects import routes
from headpond_workloads.speech.engine.front.decoding import Bounds, decode
from headpond_workloads.speech.items import (
    Committed,
    Endpointing,
    Final,
    Heard,
    Listening,
    Partial,
    Recording,
    Started,
    Stopped,
    Word,
)

ROUTE, TRANSLATION, _ = routes
HEADING = Heading(request_id="r-1", created_s=17, model="ears", fingerprint="m@1+abc")
FILE = b"any bytes; the engine reads them"
HELLO = Final(
    utterance=0,
    text="hello there",
    start_ms=100,
    end_ms=1250,
    words=(Word("hello", 100, 600, 0.9), Word("there", 700, 1200, None)),
    confidence=0.5,
    language="en",
)
AGAIN = Final(utterance=2, text="once more", start_ms=3_000, end_ms=4_000)
SILENCE = Final(utterance=1, text="", start_ms=2_000, end_ms=2_500)
WORK = Work(audio_ms=5_120)


def read(**fields: object) -> Exchange:
    body = {"model": "ears", "file": b64encode(FILE).decode(), **fields}
    return ROUTE.read(Incoming(body=json.dumps(body).encode(), content_type="application/json"))


def form(*parts: tuple[str, str]) -> Exchange:
    body = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    body += FILE + b"\r\n"
    for name, value in (("model", "ears"), *parts):
        body += f'--edge\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode()
        body += value.encode() + b"\r\n"
    return ROUTE.read(
        Incoming(body=body + b"--edge--\r\n", content_type="multipart/form-data; boundary=edge")
    )


def listening(exchange: Exchange) -> Listening:
    (item,) = exchange.ask().items
    assert isinstance(item, Recording)
    assert item.content == FILE
    return item.listening


def events(*payloads: object) -> list[ItemEvent]:
    return [*(Output(0, payload) for payload in payloads), Done(0, WORK)]


SPOKEN = events(HELLO, SILENCE, AGAIN, Heard(5_000))


def answer(exchange: Exchange, given: list[ItemEvent] = SPOKEN) -> Raw:
    return rendered(exchange.body(HEADING, given, WORK))


def streamed(exchange: Exchange, *steps: list[ItemEvent]) -> list[dict[str, Any]]:
    writer = exchange.stream(HEADING)
    lines = [event for step in steps for event in writer.write(step)]
    return [json.loads(event.data) for event in [*lines, *writer.close(WORK)]]


def param_of(exchange: Exchange) -> str | None:
    with pytest.raises(InvalidRequest) as refusal:
        exchange.ask()
    return refusal.value.param


def test_a_form_as_the_client_of_openai_sends_it() -> None:
    exchange = form(
        ("language", "en"),
        ("prompt", "Headpond"),
        ("response_format", "verbose_json"),
        ("temperature", "0.25"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "segment"),
        ("stream", "false"),
        ("chunking_strategy[type]", "server_vad"),
        ("chunking_strategy[threshold]", "0.7"),
        ("chunking_strategy[silence_duration_ms]", "250"),
    )
    assert listening(exchange) == Listening(
        language="en",
        prompt="Headpond",
        endpointing=Endpointing(threshold=0.7, silence_ms=250),
        words=True,
        temperature=0.25,
    )
    ask = exchange.ask()
    assert (ask.model, ask.stream) == ("ears", False)


@pytest.mark.parametrize(
    "exchange",
    [
        read(),
        form(),
        read(chunking_strategy="auto", language=None, stream=False),
        form(("chunking_strategy", "auto"), ("prompt", ""), ("language", ""), ("temperature", "")),
        form(("response_format", "json"), ("stream", "False"), ("chunking_strategy", "")),
    ],
)
def test_plain_requests(exchange: Exchange) -> None:
    assert listening(exchange) == Listening()


def test_vad_settings_in_json_and_as_a_text_of_json() -> None:
    vad = {"type": "server_vad", "prefix_padding_ms": 10, "silence_duration_ms": 100}
    wanted = Endpointing(prefix_padding_ms=10, silence_ms=100)
    assert listening(read(chunking_strategy=vad)).endpointing == wanted
    assert listening(form(("chunking_strategy", json.dumps(vad)))).endpointing == wanted


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "diarized_json"}, "response_format"),
        ({"include": ["logprobs"]}, "include"),
        ({"keywords": ["pond"]}, "keywords"),
        ({"languages": ["en", "de"]}, "languages"),
        ({"known_speaker_names": ["me"]}, "known_speaker_names"),
        ({"known_speaker_references": ["data:"]}, "known_speaker_references"),
    ],
)
def test_what_no_model_does_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    with pytest.raises(UnsupportedParameter) as refusal:
        read(**fields).ask()
    assert refusal.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities"),
        ({"stream": True, "response_format": "srt"}, "response_format"),
        ({"file": "not base64!"}, "file"),
        ({"file": ""}, "file"),
        ({"file": "https://example.com/a.wav"}, "file"),
    ],
)
def test_contradictions_are_refused_by_name(fields: dict[str, object], param: str) -> None:
    assert param_of(read(**fields)) == param


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("response_format", "yaml"),
        ("temperature", 1.5),
        ("temperature", "0.5"),
        ("temperature", True),
        ("language", "English"),
        ("prompt", "x" * 5000),
        ("timestamp_granularities", ["line"]),
        ("timestamp_granularities", ["word"] * 17),
        ("stream", "yes"),
        ("chunking_strategy", "often"),
        ("chunking_strategy", {"type": "server_vad", "threshold": 2}),
        ("chunking_strategy", {"type": "server_vad", "silence_duration_ms": 1e9}),
        ("file", None),
        ("model", ""),
    ],
)
def test_wrong_types_are_named(field: str, value: object) -> None:
    body = json.dumps({"model": "ears", "file": "AAAA", field: value}).encode()
    with pytest.raises(ValidationError) as refusal:
        ROUTE.read(Incoming(body=body))
    param = invalid_request(refusal.value, body).param
    assert param is not None
    assert param.split(".")[0] == field


def test_a_wrong_field_of_the_strategy_is_named_by_its_path() -> None:
    strategy = {"type": "server_vad", "silence_duration_ms": -1}
    body = json.dumps({"model": "ears", "file": "AAAA", "chunking_strategy": strategy}).encode()
    with pytest.raises(ValidationError) as refusal:
        ROUTE.read(Incoming(body=body))
    refused = invalid_request(refusal.value, body)
    assert refused.param == "chunking_strategy.silence_duration_ms"
    assert "auto" not in refused.message


def test_a_wrong_field_of_the_strategy_is_named_in_forms_too() -> None:
    with pytest.raises(ValidationError) as refusal:
        form(("chunking_strategy[type]", "server_vad"), ("chunking_strategy[threshold]", "often"))
    assert invalid_request(refusal.value, b"--edge").param == "chunking_strategy.threshold"


def test_two_files_are_refused() -> None:
    with pytest.raises(ValidationError) as refusal:
        form(("file", "another"))
    refused = invalid_request(refusal.value, b"--edge")
    assert refused.param == "file", "and not a type that it could be"
    assert "more than one file" in refused.message


@pytest.mark.parametrize("field", ["temperature", "stream", "chunking_strategy[threshold]"])
def test_fields_of_forms_are_checked_too(field: str) -> None:
    with pytest.raises((ValidationError, InvalidRequest)):
        form((field, "often"), ("chunking_strategy[type]", "server_vad")).ask()


def test_json() -> None:
    body = answer(read())
    assert body.media_type == "application/json"
    parsed = Transcription.model_validate_json(body.content)
    assert parsed.text == "hello there once more"
    assert parsed.usage is not None
    assert parsed.usage.type == "duration"
    assert parsed.usage.seconds == 5.0


def test_silence_is_an_empty_text() -> None:
    given = events(SILENCE, Heard(3_000))
    assert json.loads(answer(read(), given).content)["text"] == ""
    assert answer(read(response_format="text"), given).content == b""
    assert answer(read(response_format="srt"), given).content == b""
    assert answer(read(response_format="vtt"), given).content == b"WEBVTT\n"
    verbose = json.loads(answer(read(response_format="verbose_json"), given).content)
    assert (verbose["text"], verbose["segments"], verbose["language"]) == ("", [], "und")


def test_texts_and_their_types() -> None:
    plain = answer(read(response_format="text"))
    assert plain.content == b"hello there once more"
    assert plain.media_type == "text/plain; charset=utf-8"
    assert answer(read(response_format="srt")).media_type == "text/plain; charset=utf-8"
    assert answer(read(response_format="vtt")).media_type == "text/vtt; charset=utf-8"


def test_verbose_json_with_segments() -> None:
    exchange = read(response_format="verbose_json")
    assert listening(exchange).words is False
    parsed = TranscriptionVerbose.model_validate_json(answer(exchange).content)
    assert (parsed.language, parsed.duration, parsed.words) == ("en", 5.0, None)
    assert parsed.segments is not None
    first, second = parsed.segments
    assert (first.id, first.start, first.end, first.text) == (0, 0.1, 1.25, "hello there")
    assert first.avg_logprob == pytest.approx(-0.6931, abs=1e-4)
    assert (second.id, second.seek, second.avg_logprob) == (1, 300, 0.0)


def test_verbose_json_with_words() -> None:
    exchange = read(response_format="verbose_json", timestamp_granularities=["word"], language="de")
    assert listening(exchange).words is True
    parsed = TranscriptionVerbose.model_validate_json(answer(exchange).content)
    assert (parsed.language, parsed.segments) == ("de", None)
    assert parsed.words is not None
    assert [(word.word, word.start, word.end) for word in parsed.words] == [
        ("hello", 0.1, 0.6),
        ("there", 0.7, 1.2),
    ]


def test_a_file_that_fails_fails_the_call() -> None:
    with pytest.raises(EngineFailed):
        answer(read(), [Output(0, HELLO), Failed(0, EngineFailed())])


def test_streamed_text_never_changes() -> None:
    exchange = read(stream=True)
    assert exchange.ask().stream is True
    found = streamed(
        exchange,
        events(Started(0, 100), Partial(0, "hello fair", 5, 600)),
        events(Partial(0, "hello there", 6, 900)),
        events(Partial(0, "hello their", 6, 900)),
        events(Stopped(0, 1_250), Committed(0, 1_250), HELLO),
        events(SILENCE, Partial(2, "once moor", 0, 3_500)),
        events(AGAIN, Heard(5_120)),
    )
    *deltas, done = found
    typed = [TranscriptionTextDeltaEvent.model_validate(delta) for delta in deltas]
    assert [delta.delta for delta in typed] == ["hello", " ", "there", " once more"]
    last = TranscriptionTextDoneEvent.model_validate(done)
    assert last.text == "hello there once more"
    assert last.text == json.loads(answer(read()).content)["text"]
    assert last.usage is not None
    assert (last.usage.input_tokens, last.usage.output_tokens, last.usage.total_tokens) == (
        52,
        0,
        52,
    )
    assert done["usage"]["seconds"] == 5.12


def test_a_silent_stream_is_done_at_once() -> None:
    (done,) = streamed(read(stream=True), events(Heard(10)))
    assert (done["type"], done["text"]) == ("transcript.text.done", "")


@given(
    st.lists(st.tuples(st.text(max_size=20), st.lists(st.integers(0, 20), max_size=4)), max_size=5),
    st.integers(1, 3),
)
def test_deltas_are_the_text_however_steps_fall(
    utterances: list[tuple[str, list[int]]], per_step: int
) -> None:
    payloads: list[object] = []
    for number, (text, stables) in enumerate(utterances):
        for stable in sorted(stables):
            kept = text[:stable]
            payloads.append(Partial(number, kept + "~guess", len(kept), 10))
        payloads.append(Final(number, text, 0, 10))
    steps = [events(*payloads[at : at + per_step]) for at in range(0, len(payloads), per_step)]
    *deltas, done = streamed(read(stream=True), *steps)
    assert "".join(delta["delta"] for delta in deltas) == done["text"]
    whole = json.loads(answer(read(), events(*payloads)).content)
    assert whole["text"] == done["text"] == " ".join(text for text, _ in utterances if text)


def test_translations_are_refused_clearly() -> None:
    body = json.dumps({"model": "ears", "file": "AAAA"}).encode()
    exchange = TRANSLATION.read(Incoming(body=body))
    with pytest.raises(InvalidRequest, match="/v1/audio/transcriptions"):
        exchange.ask()


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=4))
def test_any_form_is_read_or_refused(fields: dict[str, str]) -> None:
    known = ["temperature", "stream", "chunking_strategy", "response_format", "include"]
    for at, value in enumerate(fields.values()):
        with suppress(ValidationError, InvalidRequest):
            form((known[at % len(known)], value)).ask()


def test_the_example_is_a_file_that_can_be_read() -> None:
    body = json.dumps({"model": "ears", **ROUTE.example}).encode()
    (item,) = ROUTE.read(Incoming(body=body)).ask().items
    assert isinstance(item, Recording)
    samples = decode(item.content, 16_000, Bounds(duration_ms=3_000))
    assert 2.7 < len(samples) / 16_000 < 2.9
