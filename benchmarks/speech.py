"""Streaming speech beside sherpa-onnx: the same model and clips, in processes of equal threads.

Clips are held-out synthetic voices (`recipes/streaming_words`; espeak-ng and flite must be
there). Throughput: N streams, each clip after clip, fed as fast as they are heard. Lag: N
streams as they are spoken. Ours is the engine with what its driver does in a step, without HTTP
and Ray; sherpa-onnx decodes streams in one call (`decode_streams`), or each alone. Contenders
hear all that comes; those called `vad` also tell voice from silence, with the same network.

    make bench SUBJECT=speech
    python benchmarks/speech.py --socket ws://127.0.0.1:8000/v1/realtime  # a platform that runs
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from formed import HERE
from harness import machine, median, quantile, versions, write_results
from speech_socket import socket_rows
from tables import Field, Measure, table_cases

ROOT = HERE.parent
BUNDLE = ROOT / "bundles/streaming-words"
RATE_HZ = 16_000

THROUGHPUT = (
    Measure(key="cpu_rate", unit="seconds of sound a CPU second"),
    Measure(key="wall_rate", unit="seconds of sound a second"),
)
LAG = (
    Measure(key="partial_p99_ms", unit="partial p99 ms"),
    Measure(key="partial_p50_ms", unit="partial p50 ms"),
    Measure(key="final_p50_ms", unit="final p50 ms"),
    Measure(key="final_p99_ms", unit="final p99 ms"),
    Measure(key="cpu_share", unit="CPU, cores"),
)
MOST_LAG_MS = 500.0


@dataclass(kw_only=True)
class Listener:
    """A process of one contender."""

    name: str
    process: subprocess.Popen[str]

    def ask(self, command: Mapping[str, object]) -> Any:
        """Send a command, and return its answer."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("no pipes")
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended")
        return json.loads(line)


@dataclass(frozen=True, kw_only=True)
class Clip:
    """One thing that was said."""

    path: str
    words: tuple[str, ...]
    seconds: float


@dataclass(kw_only=True)
class Run:
    """Rows by scenario; rates of the bare networks by scenario; word errors by contender."""

    fields: dict[str, Field] = field(default_factory=dict)
    bare: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, tuple[int, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, scenario: str, name: str, number: int, row: Mapping[str, float]) -> None:
        """Keep a row, and show it."""
        shown = {key: round(value, 2) for key, value in row.items()}
        print(f"round {number} {scenario:24} {name:24} {shown}", flush=True)
        if number:
            self.fields.setdefault(scenario, {}).setdefault(name, {})[number] = row


def clips(count: int, folder: Path) -> list[Clip]:
    """Let voices speak that the model never heard."""
    sys.path.insert(0, str(ROOT / "recipes/streaming_words"))
    from grammar import sentence  # noqa: PLC0415
    from voices import HELD_OUT, choose, disturb, speak  # noqa: PLC0415

    rng, noise = random.Random(5), np.random.default_rng(5)  # noqa: S311
    made = []
    for at in range(count):
        words = sentence(rng)
        samples = disturb(speak(words, choose(HELD_OUT, rng), rng), noise)
        path = folder / f"{at}.npy"
        np.save(path, np.round(samples * 32_767.0).astype(np.float32) / np.float32(32_768.0))
        made.append(Clip(path=str(path), words=tuple(words), seconds=len(samples) / RATE_HZ))
    return made


@contextmanager
def listeners(names: Sequence[str], threads: int) -> Iterator[list[Listener]]:
    """Start a process for each contender; they wait while others are measured."""
    found = find_spec("silero_vad")
    if found is None or found.origin is None:
        raise RuntimeError("pip install silero-vad")
    voice = Path(found.origin).parent / "data/silero_vad.onnx"
    script = str(HERE / "peers/speech_listen.py")
    up = [
        Listener(
            name=name,
            process=subprocess.Popen(
                [sys.executable, script, name, str(BUNDLE), str(threads), str(voice)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ),
        )
        for name in names
    ]
    try:
        for each in up:
            if each.process.stdout is None or not each.process.stdout.readline():
                raise RuntimeError(f"{each.name} did not start")
        yield up
    finally:
        for each in up:
            each.process.terminate()
            each.process.wait()


def dealt(made: Sequence[Clip], streams: int, each: int) -> list[list[Clip]]:
    """Give every stream some clips, other ones first to each."""
    return [
        [made[(stream * 7 + at) % len(made)] for at in range(each)] for stream in range(streams)
    ]


def throughput(
    up: Sequence[Listener], made: Sequence[Clip], streams: int, number: int, run: Run
) -> None:
    """Feed streams as fast as they are heard."""
    given = dealt(made, streams, max(2, 48 // streams))
    seconds = sum(clip.seconds for said in given for clip in said)
    command = {"do": "fast", "clips": [[clip.path for clip in said] for said in given]}
    scenario = f"{streams} stream{'s' if streams > 1 else ''}, as fast as heard"
    for each in up[number % len(up) :] + up[: number % len(up)]:
        answer = each.ask(command)
        row = {"cpu_rate": seconds / answer["cpu_s"], "wall_rate": seconds / answer["wall_s"]}
        run.note(scenario, each.name, number, row)
        if each.name == "ours" and number:
            bare = each.ask(command | {"do": "bare"})
            run.bare.setdefault(scenario, []).append(seconds / bare["cpu_s"])
        wrong, total = run.errors.get(each.name, (0, 0))
        for said, texts in zip(given, answer["texts"], strict=True):
            for clip, text in zip(said, texts, strict=True):
                wrong += errors(clip.words, text.split())
                total += len(clip.words)
        run.errors[each.name] = wrong, total


def lag(
    up: Sequence[Listener],
    made: Sequence[Clip],
    known: Mapping[str, Mapping[str, float]],
    streams: int,
    run: Run,
) -> dict[str, float]:
    """Speak in real time; return each contender's p99 of partial texts."""
    given = dealt(made, streams, 3)
    command = {
        "do": "paced",
        "clips": [[clip.path for clip in said] for said in given],
        "known": [[known[clip.path] for clip in said] for said in given],
    }
    late = {}
    for each in up:
        answer = each.ask(command)
        row = lag_row(answer["partial_s"], answer["final_s"])
        row["cpu_share"] = answer["cpu_s"] / answer["wall_s"]
        run.note(f"{streams} streams as they are spoken", each.name, 1, row)
        late[each.name] = row["partial_p99_ms"]
    return late


def lag_row(partial_s: Sequence[float], final_s: Sequence[float]) -> dict[str, float]:
    """Return medians and 99th percentiles, in ms."""
    return {
        "partial_p50_ms": 1e3 * median(partial_s),
        "partial_p99_ms": 1e3 * quantile(partial_s, 0.99),
        "final_p50_ms": 1e3 * median(final_s),
        "final_p99_ms": 1e3 * quantile(final_s, 0.99),
    }


def errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """Return the least number of words to insert, delete or replace (Levenshtein, 1966)."""
    row = list(range(len(heard) + 1))
    for at, word in enumerate(said, 1):
        corner, row[0] = row[0], at
        for to, other in enumerate(heard, 1):
            corner, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, corner + (word != other))
    return row[-1]


def held(
    up: Sequence[Listener],
    made: Sequence[Clip],
    steps: Sequence[int],
    run: Run,
) -> None:
    """Speak in more and more streams, until nobody follows."""
    (floor,) = [each for each in up if each.name == "sherpa"]
    texts = floor.ask({"do": "floor", "clips": [[clip.path for clip in made]]})["texts"][0]
    known = {clip.path: found for clip, found in zip(made, texts, strict=True)}
    following = list(up)
    most = dict.fromkeys((each.name for each in up), 0)
    for streams in steps:
        late = lag(following, made, known, streams, run)
        following = [each for each in following if late[each.name] < MOST_LAG_MS]
        most |= {each.name: streams for each in following}
        if not following:
            break
    run.notes += [
        f"{name}: {streams} streams at once with p99 of partial texts under {MOST_LAG_MS:.0f} ms "
        f"(tried: {', '.join(map(str, steps))})"
        for name, streams in most.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clips", type=int, default=48)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--streams", default="1,4,16")
    parser.add_argument("--paced", default="16,64,128,192,256", help="streams in real time")
    parser.add_argument("--only", default="ours,sherpa,sherpa-alone,ours+vad,sherpa+vad")
    parser.add_argument("--socket", default="", help="a running platform's realtime address")
    parser.add_argument("--model", default="streaming-words", help="its name there")
    parser.add_argument("--subject", default="speech", help="name of the results file")
    options = parser.parse_args()
    before, run = machine(), Run()
    names = options.only.split(",")
    with tempfile.TemporaryDirectory() as folder:
        made = clips(options.clips, Path(folder))
        with listeners(names, options.threads) as up:
            for number in range(options.rounds + 1):
                for streams in map(int, options.streams.split(",")):
                    throughput(up, made, streams, number, run)
            if options.paced:
                plain = [each for each in up if "vad" not in each.name]
                held(plain, made, [int(each) for each in options.paced.split(",")], run)
        if options.socket:
            given = dealt(made, int(options.streams.split(",")[-1]), 3)
            sounds = [[np.load(clip.path) for clip in said] for said in given]
            found = asyncio.run(socket_rows(options.socket, options.model, sounds))
            run.note("over the WebSocket, as spoken", "ours", 1, lag_row(*found))
    print(write_results(options.subject, document(run, names, before, options)))


def floors(run: Run, scenario: str, ours: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return what the networks alone allow in a scenario, beside each of ours that only hears."""
    rates = run.bare.get(scenario)
    return {name: {"onnxruntime": median(rates)} for name in ours if name == "ours" and rates}


def measures_of(found: Field) -> list[Measure]:
    """Return what everybody's rows hold: nobody sees what a platform behind a socket computes."""
    rows = [row for by_round in found.values() for row in by_round.values()]
    return [each for each in (*THROUGHPUT, *LAG) if all(each.key in row for row in rows)]


def document(
    run: Run, names: Sequence[str], before: Mapping[str, object], options: argparse.Namespace
) -> dict[str, object]:
    """Return what is written to the results."""
    ours = [name for name in names if name.startswith("ours")]
    quality = {
        name: f"word error rate {wrong / total:.3f} of {total} words"
        for name, (wrong, total) in run.errors.items()
    }
    return {
        "machine": before,
        "versions": versions("onnxruntime", "sherpa-onnx", "numpy", "torch"),
        "rounds": max(options.rounds, 1),
        "settings": {"threads": options.threads, "clips": options.clips},
        "cases": [
            case
            for scenario, found in run.fields.items()
            for case in table_cases(
                scenario,
                measures_of(found),
                found,
                ours=ours,
                floors=floors(run, scenario, ours),
                quality=quality,
            )
        ],
        "notes": run.notes,
    }


if __name__ == "__main__":
    main()
