"""The commands that workloads bring to `headpond`, against the HTTP layer."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from exchanges import MODEL, app_over, scripted, scripted_events, serving
from headpond.call import Done, Ended, Event, Output
from headpond.cli import app
from headpond.errors import InvalidRequest
from headpond.record import WorkloadRecord
from headpond.testing.scripted import ScriptedBackend
from headpond.units import Work
from headpond_workloads.embedding.items import Embedding
from headpond_workloads.embedding.record import record as embedding
from headpond_workloads.generation.items import GenerationItem, TextDelta, TokenUsage
from headpond_workloads.generation.record import record as generation
from headpond_workloads.reranking.items import Score
from headpond_workloads.reranking.record import record as reranking
from headpond_workloads.speech.items import Final, Heard, Recording, Word
from headpond_workloads.speech.record import record as speech
from headpond_workloads.vision.items import Classification, ClassScore, Rejected
from headpond_workloads.vision.record import record as vision
from workloads.diffusion.brush import Painter, painting
from workloads.speech.test_dialect_transcription import FILE

Serve = Callable[[WorkloadRecord, ScriptedBackend], None]
SAID = TextDelta(
    text="hello there",
    finish_reason="stop",
    usage=TokenUsage(prompt_tokens=3, completion_tokens=1),
)


def run(*words: str, typed: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=typed)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serve one workload's app where the commands look for a server."""
    with ExitStack() as stack:

        def start(record: WorkloadRecord, backend: ScriptedBackend) -> None:
            url = stack.enter_context(serving(app_over(record, backend)))
            monkeypatch.setenv("HEADPOND_BASE_URL", url)

        yield start


def embedded(*values: float) -> Embedding:
    packed = struct.pack(f"<{len(values)}f", *values)
    return Embedding(vectors=packed, dimensions=len(values), tokens=3)


class TestChat:
    @pytest.fixture(autouse=True)
    def backend(self, serve: Serve) -> ScriptedBackend:
        backend = scripted(generation, SAID)
        serve(generation, backend)
        return backend

    def test_one_answer(self, backend: ScriptedBackend) -> None:
        done = run("chat", "hi", "--temperature", "0", "--max-tokens", "9", "--system", "be kind")
        assert (done.exit_code, done.stdout) == (0, "hello there\n"), done.output
        (call,) = backend.calls
        (item,) = call.items
        assert isinstance(item, GenerationItem)
        assert (item.max_output_tokens, item.sampling.temperature) == (9, 0.0)
        assert call.stream

    def test_json_and_standard_input(self) -> None:
        done = run("chat", "--json", typed="hi")
        assert json.loads(done.stdout)["choices"][0]["message"]["content"] == "hello there"

    def test_a_conversation(
        self, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headpond_workloads.generation.commands.at_terminal", lambda: True)
        done = run("chat", typed="one\n\ntwo\n")
        assert done.exit_code == 0, done.output
        assert done.stdout.count("hello there\n") == 2
        assert len(backend.calls) == 2
        assert run("chat", "--json").exit_code == 2

    def test_refusals(self) -> None:
        done = run("chat", "hi", "--model", "none")
        assert (done.exit_code, done.stdout) == (1, "")
        assert "does not exist" in done.stderr
        assert run("chat", "hi", "--temperature", "9").exit_code == 1
        assert run("chat", "hi", "--max-tokens", "0").exit_code == 2

    def test_a_prompt_has_to_say_something(self, backend: ScriptedBackend) -> None:
        for done in (run("chat", " "), run("chat", typed="\n")):
            assert done.exit_code == 2
            assert "give a prompt" in done.stderr
        assert "no UTF-8 text" in run("chat", typed=b"\xff").stderr
        assert backend.calls == []


def test_embed(serve: Serve) -> None:
    serve(embedding, scripted(embedding, embedded(0.5, 1.0), embedded(1.0, 2.0)))
    done = run("embed", "a pond", "a mill")
    assert done.exit_code == 0, done.output
    assert "a pond" in done.stdout
    assert "1.00" in done.stdout
    shown = json.loads(run("embed", "--json", typed="a pond\n\na mill\n").stdout)
    assert [each["embedding"] for each in shown["data"]] == [[0.5, 1.0], [1.0, 2.0]]
    assert run("embed", typed="").exit_code == 2


def test_rerank(serve: Serve) -> None:
    scores = [Score(logits=(9.0,), scores=(value,), tokens=4) for value in (0.25, 0.75)]
    serve(reranking, scripted(reranking, *scores))
    lines = run("rerank", "which", "first", "second").stdout.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["second", "first"]
    best = json.loads(run("rerank", "which", "--json", typed="first\nsecond\n").stdout)
    assert best["results"][0]["index"] == 1


def test_classify(serve: Serve, tmp_path: Path) -> None:
    seen = Classification(classes=(ClassScore("cat", 3, 0.75),), pixels=12)
    paths = [tmp_path / name for name in ("one.png", "two.png")]
    for path in paths:
        Image.new("RGB", (4, 3)).save(path)
    serve(vision, scripted(vision, seen))
    done = run("classify", str(paths[0]))
    assert done.exit_code == 0, done.output
    assert "cat" in done.stdout
    assert json.loads(run("classify", str(paths[0]), "--json").stdout)["data"][0]["classes"]
    assert run("classify", str(tmp_path / "none.png")).exit_code == 2


def test_an_image_of_several_that_is_none_has_its_own_code(serve: Serve, tmp_path: Path) -> None:
    seen = Classification(classes=(ClassScore("cat", 3, 0.75),), pixels=12)
    serve(vision, scripted(vision, seen, Rejected(error=InvalidRequest("no image"))))
    path = tmp_path / "one.png"
    Image.new("RGB", (4, 3)).save(path)
    done = run("classify", str(path), str(path))
    assert done.exit_code == 3
    assert "no image" in done.stdout


class TestTranscribe:
    @pytest.fixture(autouse=True)
    def backend(self, serve: Serve) -> ScriptedBackend:
        final = Final(0, "hello there", 0, 900, (Word("hello", 0, 400, 0.5),))
        work = Work(audio_ms=1000)
        found: list[Event] = [Output(0, final), Output(0, Heard(1000))]
        found += [Done(0, work), Ended(work)]
        backend = scripted_events(speech, found)
        serve(speech, backend)
        return backend

    def test_files(self, backend: ScriptedBackend, tmp_path: Path) -> None:
        path = tmp_path / "a.wav"
        path.write_bytes(FILE)
        assert run("transcribe", str(path), str(path)).stdout == "hello there\n" * 2
        (item,) = backend.calls[-1].items
        assert isinstance(item, Recording)
        assert item.content == FILE
        srt = run("transcribe", str(path), "--format", "srt").stdout
        assert srt.startswith("1\n00:00:00,000 --> 00:00:00,900\nhello there\n")
        shown = json.loads(run("transcribe", str(path), "--json").stdout)
        assert (shown["file"], shown["words"][0]["word"]) == (str(path), "hello")

    def test_wrong_usage(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert run("transcribe").exit_code == 2
        assert run("transcribe", "--microphone", "--format", "srt").exit_code == 2
        monkeypatch.setitem(sys.modules, "sounddevice", None)
        done = run("transcribe", "--microphone")
        assert done.exit_code == 2
        assert "headpond[microphone]" in done.stderr.replace("\n", "")


def format_of(path: str | Path) -> str | None:
    with Image.open(path) as picture:
        return picture.format


@pytest.fixture
async def painter(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    async with painting(Painter()) as painted:
        with serving(painted) as url:
            monkeypatch.setenv("HEADPOND_BASE_URL", url)
            yield


@pytest.mark.usefixtures("painter")
def test_imagine(tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    done = run("imagine", "a red seven", "--output", str(path), "--seed", "7")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{path}  seed 7\n"
    assert format_of(path) == "PNG"
    several = run("imagine", "x", "-n", "2", "-o", str(tmp_path / "a.webp"), "--json")
    shown = [json.loads(line) for line in several.stdout.splitlines()]
    assert [each["path"] for each in shown] == [str(tmp_path / f"a-{at}.webp") for at in (1, 2)]
    assert format_of(shown[1]["path"]) == "WEBP"
    edited = tmp_path / "edited.jpg"
    again = run("imagine", "y", "--image", str(path), "--strength", "0.5", "-o", str(edited))
    assert again.exit_code == 0, again.output
    assert format_of(edited) == "JPEG"
    assert run("imagine", "x", "-o", "picture.txt").exit_code == 2
    assert run("imagine", "x", "--strength", "0.5").exit_code == 2
    nowhere = run("imagine", "x", "-o", str(tmp_path / "none" / "a.png"))
    assert (nowhere.exit_code, nowhere.stdout) == (2, "")
    assert "there is no folder" in nowhere.stderr


def test_nobody_there_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADPOND_BASE_URL", "http://127.0.0.1:9")
    done = run("embed", "x")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "headpond up" in done.stderr
    assert "retry 1 in" in done.stderr
    assert run("embed", "x", "--base-url", "nowhere").exit_code == 2


def test_a_workload_without_a_model(serve: Serve) -> None:
    serve(embedding, scripted(embedding, embedded(1.0)))
    done = run("chat", "hi")
    assert done.exit_code == 2
    assert "no model is served for generation" in done.stderr


def test_the_shell_completes_models(serve: Serve) -> None:
    serve(embedding, scripted(embedding, embedded(1.0)))
    words = {"_HEADPOND_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    environment = {**words, "COMP_WORDS": "headpond embed --model p"}
    done = CliRunner().invoke(app, [], prog_name="headpond", env=environment)
    assert done.stdout.split() == [MODEL]
