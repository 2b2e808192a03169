"""Our realtime client against the HTTP layer, the real loop and an engine that counts."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from exchanges import serving
from headpond.backend import LocalBackend
from headpond.cli import app
from headpond.client.errors import ConnectionFailed
from headpond.errors import InvalidRequest, ModelNotFound
from headpond.http.app import build_app
from headpond.scheduling.loop import Loop
from headpond.settings import Settings
from headpond.telemetry.metrics import Metrics
from headpond_workloads.client import AsyncClient, Client
from headpond_workloads.speech.client_realtime_events import RealtimeEvent
from headpond_workloads.speech.client_realtime_memory import Loss, Memory
from headpond_workloads.speech.microphone import Microphone
from headpond_workloads.speech.record import record
from headpond_workloads.speech.schema_realtime_events import (
    BufferAcknowledged,
    BufferCleared,
    ErrorDetail,
    ErrorEvent,
    SessionResumed,
    TranscriptionCompleted,
    TranscriptionDelta,
)
from workloads.speech.conftest import RATE_HZ, loud, quiet
from workloads.speech.test_serving import MANIFEST, loop

__all__ = ["loop"]


@pytest.fixture
def url(loop: Loop) -> Iterator[str]:
    metrics = Metrics(record, bundle=MANIFEST.ref, model="ears")
    backend = LocalBackend(
        record=record, manifest=MANIFEST, alias="ears", loop=loop, metrics_source=metrics
    )
    with serving(build_app([record], backend, Settings())) as base_url:
        yield base_url


def pieces(*lengths_ms: int, rest_ms: int = 1000) -> list[bytes]:
    """Return utterances with silence behind each, in pieces of 100 ms."""
    parts = [part for ms in lengths_ms for part in (loud(ms), quiet(rest_ms))]
    sound = (np.concatenate([quiet(320), *parts]) * 32767).astype("<i2").tobytes()
    step = 2 * RATE_HZ // 10
    return [sound[at : at + step] for at in range(0, len(sound), step)]


def finals(events: list[RealtimeEvent]) -> list[str]:
    return [each.transcript for each in events if isinstance(each, TranscriptionCompleted)]


def test_what_is_spoken_is_text_at_the_end(url: str) -> None:
    with (
        Client(base_url=url) as client,
        client.realtime.connect(model="ears", rate_hz=RATE_HZ) as session,
    ):
        events = list(session.listen(pieces(480, 960)))
    assert len(finals(events)) >= 2
    assert any(isinstance(each, TranscriptionDelta) for each in events)


@pytest.mark.parametrize("rest_ms", [0, 1000])
async def test_the_same_from_asyncio(url: str, rest_ms: int) -> None:
    async def spoken() -> AsyncIterator[bytes]:
        for piece in pieces(960, rest_ms=rest_ms):
            yield piece

    async with AsyncClient(base_url=url) as client:
        settings: Any = {"model": "ears", "rate_hz": RATE_HZ, "turn_detection": None}
        async with client.realtime.connect(**settings) as session:
            events = [event async for event in session.listen(spoken())]
        async with client.realtime.connect(model="ears", rate_hz=RATE_HZ) as session:
            plain = [event async for event in session.listen(pieces(960, rest_ms=rest_ms))]
    assert len(finals(events)) == 1
    assert len(finals(plain)) >= 1


def test_silence_and_nothing_are_no_text(url: str) -> None:
    with Client(base_url=url) as client:
        for sound in ([], pieces(rest_ms=0)):
            with client.realtime.connect(model="ears", rate_hz=RATE_HZ) as session:
                assert not "".join(finals(list(session.listen(sound))))


def test_one_who_says_where_utterances_end(url: str) -> None:
    with Client(base_url=url) as client:
        settings: Any = {"model": "ears", "rate_hz": RATE_HZ, "turn_detection": None}
        with client.realtime.connect(**settings) as session:
            for piece in pieces(480):
                session.append(piece)
            session.commit()
            for event in session:
                if isinstance(event, TranscriptionCompleted):
                    assert event.transcript
                    break
            session.clear()


def test_refusals_are_the_servers_own(url: str) -> None:
    with Client(base_url=url) as client:
        with pytest.raises(ModelNotFound), client.realtime.connect(model="none"):
            pass
        with pytest.raises(InvalidRequest), client.realtime.connect(model="ears", rate_hz=5):
            pass


def test_nobody_there() -> None:
    client = Client(base_url="http://127.0.0.1:9", max_retries=0)
    with client, pytest.raises(ConnectionFailed), client.realtime.connect(model="ears"):
        pass


async def test_sound_that_fails_is_told_to_who_listens(url: str) -> None:
    def broken() -> Iterator[bytes]:
        yield b"\0\0"
        raise RuntimeError("unplugged")

    with (
        Client(base_url=url) as client,
        client.realtime.connect(model="ears") as session,
        pytest.raises(RuntimeError, match="unplugged"),
    ):
        list(session.listen(broken()))
    async with AsyncClient(base_url=url) as other, other.realtime.connect(model="ears") as talk:
        with pytest.raises(RuntimeError, match="unplugged"):
            _ = [event async for event in talk.listen(broken())]


class Sounddevice(ModuleType):
    """A sound system whose microphone hears `heard`."""

    PortAudioError = RuntimeError
    heard: list[bytes]
    asked: dict[str, Any]
    interrupts = False

    def RawInputStream(self, **asked: Any) -> Sounddevice:  # noqa: N802 - as it is called
        if asked["device"] == "none":
            raise self.PortAudioError("no such device")
        self.asked = asked
        return self

    def start(self) -> None:
        def speak() -> None:
            for piece in self.heard:
                self.asked["callback"](memoryview(piece), len(piece) // 2, None, None)
            if self.interrupts:
                os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=speak).start()

    def close(self) -> None:
        pass


@pytest.fixture
def sounddevice(monkeypatch: pytest.MonkeyPatch) -> Sounddevice:
    module = Sounddevice("sounddevice")
    module.heard = pieces(480)
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    return module


def test_the_microphone_is_heard_until_it_is_stopped(url: str, sounddevice: Sounddevice) -> None:
    events = []
    with (
        Client(base_url=url) as client,
        Microphone(rate_hz=RATE_HZ) as microphone,
        client.realtime.connect(model="ears", rate_hz=RATE_HZ) as session,
    ):
        for event in session.listen(microphone):
            events.append(event)
            if isinstance(event, TranscriptionCompleted):
                microphone.stop()
    assert finals(events)
    asked = sounddevice.asked
    assert (asked["samplerate"], asked["channels"], asked["dtype"]) == (RATE_HZ, 1, "int16")
    assert asked["blocksize"] == RATE_HZ // 10


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_the_command_listens_until_ctrl_c(
    url: str, sounddevice: Sounddevice, words: tuple[str, ...]
) -> None:
    sounddevice.interrupts = True
    handler = signal.getsignal(signal.SIGINT)
    command = ["transcribe", "--microphone", "--base-url", url, *words]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    (line,) = done.stdout.splitlines()
    assert (json.loads(line)["transcript"] if words else line).endswith(" ms")
    assert signal.getsignal(signal.SIGINT) is handler


def test_no_microphone_is_said(sounddevice: Sounddevice, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="no such device"):
        Microphone(device="none").__enter__()
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(ImportError, match=r"headpond\[microphone\]"):
        Microphone().__enter__()


@contextmanager
def breaking(base_url: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Stand between a client and a server; yields an address, and what breaks all connections."""
    target = ("127.0.0.1", int(base_url.rpartition(":")[2]))
    pairs: list[socket.socket] = []

    def carry(source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(2**16):
                to.sendall(piece)
        for end in (source, to):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                theirs, _ = listening.accept()
                ours = socket.create_connection(target)
                pairs.extend((theirs, ours))
                for ends in ((theirs, ours), (ours, theirs)):
                    threading.Thread(target=carry, args=ends, daemon=True).start()

    def cut() -> None:
        for end in pairs:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", cut
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()
        cut()
        for end in pairs:
            end.close()


def cut_after(count: int, sound: list[bytes], cut: Callable[[], None]) -> Iterator[bytes]:
    """Yield sound, and break the connection after so many pieces."""
    for number, piece in enumerate(sound):
        if number == count:
            time.sleep(0.2)  # what was sent arrives, and is in part text
            cut()
        yield piece


@pytest.mark.parametrize("count", [1, 9, 20])
def test_a_session_goes_on_where_its_connection_breaks(url: str, count: int) -> None:
    settings: Any = {"model": "ears", "rate_hz": RATE_HZ}
    sound = pieces(480, 960)
    with Client(base_url=url) as client, client.realtime.connect(**settings) as session:
        whole = finals(list(session.listen(sound)))
    with (
        breaking(url) as (address, cut),
        Client(base_url=address) as client,
        client.realtime.connect(**settings) as session,
    ):
        events = list(session.listen(cut_after(count, sound, cut)))
    assert list(filter(None, finals(events))) == list(filter(None, whole))
    assert any(isinstance(each, SessionResumed) for each in events)


async def test_an_async_session_goes_on_where_its_connection_breaks(url: str) -> None:
    settings: Any = {"model": "ears", "rate_hz": RATE_HZ}
    with breaking(url) as (address, cut):
        client = AsyncClient(base_url=address)
        async with client, client.realtime.connect(**settings) as session:
            sound = cut_after(9, pieces(480, 960), cut)
            events = [event async for event in session.listen(sound)]
    assert len(list(filter(None, finals(events)))) == 2
    assert any(isinstance(each, SessionResumed) for each in events)


def test_who_wants_no_retries_is_told_of_a_broken_connection(url: str) -> None:
    with (
        breaking(url) as (address, cut),
        Client(base_url=address, max_retries=0) as client,
        client.realtime.connect(model="ears", rate_hz=RATE_HZ) as session,
        pytest.raises(ConnectionFailed),
    ):
        list(session.listen(cut_after(9, pieces(480, 960), cut)))


def spoken_memory(count: int) -> Memory:
    memory = Memory("update", RATE_HZ)
    for _ in range(count):
        memory.append(b"\0\0")
    return memory


def sequences(texts: list[str]) -> list[int | str]:
    events = [json.loads(text) for text in texts if text != "update"]
    return [event.get("sequence") or event["type"].rpartition(".")[2] for event in events]


def test_what_is_in_final_text_is_not_sent_again() -> None:
    memory = spoken_memory(4)
    assert memory.take(BufferAcknowledged(event_id="event_3", sequence=2, audio_end_ms=1))
    assert sequences(memory.again(3)) == [3, 4]
    assert sequences(memory.again(2)) == ["clear", 3, 4]  # 2 is not kept
    assert memory.address()["last_event"] == "3"


def test_commits_and_clears_are_sent_again_in_their_places() -> None:
    memory = spoken_memory(2)
    memory.commit()
    memory.append(b"\0\0")
    assert sequences(memory.again(2)) == [2, "commit", 3]
    assert sequences(memory.again(3)) == ["commit", 3]
    assert sequences(memory.again(4)) == []
    memory.clear()
    memory.append(b"\0\0")
    assert sequences(memory.again(2)) == ["clear", 4]
    memory.take(BufferCleared())
    memory.end()
    assert sequences(memory.again(5)) == [5, "commit"]  # silence, so that it is answered


def test_a_worker_that_stays_away_is_told_in_the_end() -> None:
    memory = spoken_memory(1)
    detail = ErrorDetail(
        type="server_error",
        code="worker_lost",
        message="gone",
        param=None,
        resumable=True,
        acknowledged_sequence=0,
        retry_after_ms=250,
    )
    losses = [memory.loss(ErrorEvent(error=detail)) for _ in range(100)]
    assert losses[0] == Loss(next_sequence=1, wait_s=0.25)
    assert losses[-1] is None
