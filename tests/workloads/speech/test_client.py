"""Our client and OpenAI's against the HTTP layer; what the engine finds is scripted."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
from openai.types.audio import (
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
)

from exchanges import MODEL, app_over, scripted_events, serving
from headpond.call import Done, Ended, Event, Output
from headpond.client.config import ClientConfig
from headpond.client.transport import Transport
from headpond.errors import InvalidRequest
from headpond.testing.echo import record as echo
from headpond.testing.http_script import ScriptedServer
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work
from headpond_workloads.client import AsyncClient, Client
from headpond_workloads.speech.client import Transcriptions
from headpond_workloads.speech.dialects import routes
from headpond_workloads.speech.items import (
    Endpointing,
    Final,
    Heard,
    Listening,
    Partial,
    Recording,
    Word,
)
from workloads.speech.test_dialect_transcription import FILE

RECORD = replace(echo, name="speech", routes=routes)
FINAL = Final(0, "hello there", 0, 900, (Word("hello", 0, 400, 0.5), Word("there", 500, 900, 1.0)))
WORK = Work(audio_ms=1000)
CONFIG = ClientConfig(base_url="http://test", api_key=None)


@pytest.fixture
def backend() -> ScriptedBackend:
    found = [Partial(0, "hello", 5, 400), FINAL, Heard(1000)]
    events: list[Event] = [*(Output(0, each) for each in found), Done(0, WORK), Ended(WORK)]
    return scripted_events(RECORD, events)


@pytest.fixture
def url(backend: ScriptedBackend) -> Iterator[str]:
    with serving(app_over(RECORD, backend)) as base_url:
        yield base_url


def asked(backend: ScriptedBackend) -> Listening:
    (item,) = backend.calls[-1].items
    assert isinstance(item, Recording)
    assert item.content == FILE
    return item.listening


def test_the_client_of_openai(url: str, backend: ScriptedBackend) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        create = client.audio.transcriptions.create
        plain = create(file=("a.wav", FILE), model=MODEL)
        assert plain.text == "hello there"
        assert plain.usage is not None
        assert plain.usage.type == "duration"
        assert asked(backend) == Listening()
        verbose = create(
            file=FILE,
            model=MODEL,
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
            temperature=0.5,
            language="en",
            chunking_strategy={"type": "server_vad", "silence_duration_ms": 300},
        )
        assert isinstance(verbose, TranscriptionVerbose)
        assert verbose.words is not None
        assert [word.word for word in verbose.words] == ["hello", "there"]
        assert asked(backend) == Listening(
            language="en", words=True, temperature=0.5, endpointing=Endpointing(silence_ms=300)
        )
        srt: object = create(file=FILE, model=MODEL, response_format="srt")
        assert srt == "1\n00:00:00,000 --> 00:00:00,900\nhello there\n"
        vtt: object = create(file=FILE, model=MODEL, response_format="vtt")
        assert str(vtt).startswith("WEBVTT\n\n00:00:00.000 -->")
        text: object = create(file=FILE, model=MODEL, response_format="text")
        assert text == "hello there"


def test_the_stream_of_openai(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        events = list(client.audio.transcriptions.create(file=FILE, model=MODEL, stream=True))
    *deltas, done = events
    assert all(isinstance(delta, TranscriptionTextDeltaEvent) for delta in deltas)
    assert isinstance(done, TranscriptionTextDoneEvent)
    assert done.text == "hello there"
    assert done.usage is not None
    assert done.usage.total_tokens == 10


def test_refusals_over_http(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as refusal:
            client.audio.transcriptions.create(file=FILE, model=MODEL, include=["logprobs"])
        assert (refusal.value.param, refusal.value.code) == ("include", "unsupported_parameter")
        translated = pytest.raises(openai.BadRequestError, match="/v1/audio/transcriptions")
        with pytest.deprecated_call(), translated:
            client.audio.translations.create(file=FILE, model=MODEL)
        with pytest.raises(openai.BadRequestError) as refusal:
            client.audio.transcriptions.create(
                file=FILE, model=MODEL, stream=True, extra_body={"temperature": "hot"}
            )
        assert refusal.value.param == "temperature"


def test_our_client(url: str, backend: ScriptedBackend) -> None:
    with Client(base_url=url) as client:
        assert client.transcriptions.create(model=MODEL, file=FILE).text == "hello there"
        verbose = client.transcriptions.create(
            model=MODEL,
            file=FILE,
            response_format="verbose_json",
            timestamp_granularities=["word"],
            language="de",
        )
        assert asked(backend) == Listening(language="de", words=True)
        assert verbose.language == "de"
        assert verbose.words is not None
        assert verbose.words[0].confidence == 0.5
        with client.transcriptions.create(model=MODEL, file=FILE, stream=True) as events:
            *deltas, done = events
        assert "".join(event.delta or "" for event in deltas) == done.text == "hello there"


async def test_our_async_client(url: str, backend: ScriptedBackend) -> None:
    async with AsyncClient(base_url=url) as client:
        found = await client.transcriptions.create(
            model=MODEL,
            file=FILE,
            temperature=0.5,
            chunking_strategy={"type": "server_vad", "threshold": 0.25},
            extra_body={"future": True},
        )
        stream = await client.transcriptions.create(model=MODEL, file=FILE, stream=True)
        async with stream:
            assert [event.type async for event in stream][-1] == "transcript.text.done"
    assert found.text == "hello there"
    backend.calls.pop()
    assert asked(backend) == Listening(temperature=0.5, endpointing=Endpointing(threshold=0.25))


def test_subtitles_and_texts(url: str) -> None:
    with Client(base_url=url) as client:
        create = client.transcriptions.create
        srt = create(model=MODEL, file=FILE, response_format="srt")
        assert srt == "1\n00:00:00,000 --> 00:00:00,900\nhello there\n"
        assert create(model=MODEL, file=FILE, response_format="text") == "hello there"


def test_files_are_read_while_they_are_sent(
    url: str, backend: ScriptedBackend, tmp_path: Path
) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(FILE)
    told: list[tuple[int, int]] = []
    with Client(base_url=url) as client:
        create = client.transcriptions.create
        create(model=MODEL, file=path, on_progress=lambda sent, total: told.append((sent, total)))
        assert asked(backend) == Listening()
        assert told[-1] == (len(FILE), len(FILE))
        with path.open("rb") as file:
            create(model=MODEL, file=file)
        assert asked(backend) == Listening()
        with pytest.raises(FileNotFoundError):
            create(model=MODEL, file=tmp_path / "none.wav")


@pytest.mark.parametrize(
    "samples",
    [
        np.array([0.0, 1.0, -2.0], np.float32),
        np.array([0, 32767, -32767], np.int16),
        np.array([[0.0], [1.0], [-1.0]]),
    ],
)
def test_samples_go_out_as_a_file(url: str, backend: ScriptedBackend, samples: Any) -> None:
    with Client(base_url=url) as client:
        client.transcriptions.create(model=MODEL, file=(samples, 8000))
    (item,) = backend.calls[-1].items
    assert isinstance(item, Recording)
    with wave.open(io.BytesIO(item.content)) as file:
        assert (file.getframerate(), file.getnchannels()) == (8000, 1)
        assert struct.unpack("<3h", file.readframes(3)) == (0, 32767, -32767)


def test_what_the_server_would_refuse_is_not_sent() -> None:
    server = ScriptedServer()
    with httpx2.Client(transport=httpx2.MockTransport(server)) as http:
        transcriptions = Transcriptions(Transport(CONFIG, http))
        with pytest.raises(InvalidRequest) as refusal:
            transcriptions.create(model="ears", file=FILE, temperature=2.0)
    assert refusal.value.param == "temperature"
