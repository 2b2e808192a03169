"""Speech on a running platform: files and live streams, by both doors and both kinds of model."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.realtime import ConversationItemInputAudioTranscriptionCompletedEvent as Completed
from openai.types.realtime import ConversationItemInputAudioTranscriptionDeltaEvent as Delta
from openai.types.realtime import RealtimeServerEvent

from speakers import FORMAT, as_wav, pieces, recording, speech
from testbed import KEY, ROOT, SPEECH, WHISPER, WORDS, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SENTENCES = {WORDS: "go forward ten meters", WHISPER: "Go forward 10 meters."}
DOORS = ("routed", "direct")


def base_url(platform: Platform, door: str, alias: str) -> str:
    return f"{platform.base_url if door == 'routed' else platform.direct(alias)}/v1"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("model", SPEECH)
def test_files_by_openais_client(platform: Platform, model: str, door: str) -> None:
    file = ("spoken.wav", recording())
    with openai.OpenAI(base_url=base_url(platform, door, model), api_key=KEY) as client:
        plain = client.audio.transcriptions.create(model=model, file=file)
        verbose = client.audio.transcriptions.create(
            model=model,
            file=file,
            response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
        )
        stream = client.audio.transcriptions.create(model=model, file=file, stream=True)
        *parts, last = stream
    assert plain.text == verbose.text == SENTENCES[model]
    assert verbose.words is not None
    assert [each.word for each in verbose.words] == SENTENCES[model].split()
    assert last.type == "transcript.text.done"
    deltas = [each.delta for each in parts if each.type == "transcript.text.delta"]
    assert "".join(deltas) == last.text == SENTENCES[model]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("model", SPEECH)
async def test_realtime_by_openais_client(platform: Platform, model: str, door: str) -> None:
    """One sentence as it is spoken; the server hears where it ends."""
    async with (
        openai.AsyncOpenAI(base_url=base_url(platform, door, model), api_key=KEY) as client,
        client.realtime.connect(model=model, extra_query={"intent": "transcription"}) as connection,
    ):
        update: Any = {"type": "transcription", "audio": {"input": {"format": FORMAT}}}
        await connection.session.update(session=update)  # its types know one rate only

        async def speak() -> None:
            for piece in pieces(speech(), 100):
                audio = base64.b64encode(piece).decode()
                await connection.input_audio_buffer.append(audio=audio)
                await asyncio.sleep(0.1)

        speaking = asyncio.create_task(speak())
        heard: list[RealtimeServerEvent] = []
        async with asyncio.timeout(60):
            async for event in connection:
                assert event.type != "error", event
                heard.append(event)
                if isinstance(event, Completed):
                    assert event.transcript == SENTENCES[model]
                    break
        await speaking
    deltas = [each for each in heard if isinstance(each, Delta)]
    assert "".join(each.delta or "" for each in deltas) == SENTENCES[model]
    assert len(deltas) > 1, "there were partial texts"
    stopped = [each.type for each in heard].index("input_audio_buffer.speech_stopped")
    assert heard.index(deltas[0]) < stopped, "they came while it was spoken"


def test_the_program_of_the_docs(platform: Platform, tmp_path: Path) -> None:
    page = (ROOT / "docs/speech.md").read_text(encoding="utf-8")
    (program,) = re.findall(r'```python title="listen.py"\n(.*?)```', page, re.S)
    for given, here in (
        ("http://127.0.0.1:8000", platform.base_url),
        ("unused-without-keys", KEY),
    ):
        assert given in program
        program = program.replace(given, here)
    (tmp_path / "listen.py").write_text(program, encoding="utf-8")
    (tmp_path / "spoken.wav").write_bytes(as_wav(speech(rest_ms=0)))
    done = subprocess.run(
        [sys.executable, "listen.py", "spoken.wav"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *partial, final = done.stdout.splitlines()
    assert final == SENTENCES[WHISPER]
    assert any("forward" in line for line in partial)
    assert done.stderr == ""
