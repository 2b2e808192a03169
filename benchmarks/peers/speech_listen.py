"""One process that hears streams in-process: ours (engine and its step), or sherpa-onnx.

Reads one JSON command a line, answers one JSON line. Commands are
`{"do": "fast"|"paced"|"floor"|"bare",
"clips": [[path of .npy, ...] of each stream]}`: clips are float32 at 16 kHz; of `fast`, each
stream is given its next 160 ms as soon as the ones before are heard; of `paced`, as it is
spoken, 40 ms at a time, streams spread over a chunk. A partial text's lag counts from when the
sound was spoken after which the model can say it (`floor` finds that out), a final text's from
the end of its clip. `bare` runs the model's networks alone, with a batch of all streams.

    python speech_listen.py WHO BUNDLE THREADS     # WHO: ours, ours+vad, sherpa, sherpa-alone, ...
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000
CHUNK = RATE_HZ * 160 // 1000
PIECE = RATE_HZ * 40 // 1000
TAIL = RATE_HZ * 320 // 1000

Samples = NDArray[Any]
"""float32 between -1 and 1, or what `Listener.prepared` made of it."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a step did for a stream: whether it went on, and the texts that came, if any did."""

    went: bool = False
    partial: str | None = None
    final: str | None = None


class Listener(Protocol):
    """What both sides can do; a stream is one clip after another."""

    def open(self) -> Any: ...

    def prepared(self, samples: Samples) -> Samples:
        """Return a clip as it is taken in; this is not timed."""
        ...

    def add(self, stream: Any, samples: Samples, *, ends: bool) -> None:
        """Take in more of a clip, or the last of it."""
        ...

    def step(self, streams: Sequence[Any]) -> list[Told]:
        """Go on with all that can by a chunk."""
        ...


class Sherpa:
    """sherpa-onnx's own recogniser: several streams in one call, or each alone."""

    def __init__(self, bundle: Path, threads: int, *, together: bool, vad: str | None) -> None:
        import sherpa_onnx  # noqa: PLC0415 - only one contender is there at a time

        files = {name: str(bundle / f"{name}.onnx") for name in ("encoder", "decoder", "joiner")}
        self._model = sherpa_onnx.OnlineRecognizer.from_transducer(
            tokens=str(bundle / "tokens.txt"),
            **files,
            num_threads=threads,
            decoding_method="greedy_search",
        )
        self._together = together
        self._voice = None
        if vad is not None:
            config = sherpa_onnx.VadModelConfig()
            config.silero_vad.model = vad
            config.sample_rate = RATE_HZ
            self._voice = lambda: sherpa_onnx.VoiceActivityDetector(config, 30)

    def open(self) -> dict[str, Any]:
        return {
            "stream": self._model.create_stream(),
            "ends": False,
            "vad": self._voice() if self._voice else None,
        }

    def prepared(self, samples: Samples) -> Samples:
        return samples

    def add(self, stream: dict[str, Any], samples: Samples, *, ends: bool) -> None:
        if stream["vad"] is not None:
            stream["vad"].accept_waveform(samples)
            while not stream["vad"].empty():
                stream["vad"].pop()
        stream["stream"].accept_waveform(RATE_HZ, samples)
        if ends:
            stream["stream"].accept_waveform(RATE_HZ, np.zeros(RATE_HZ // 2, np.float32))
            stream["stream"].input_finished()
            stream["ends"] = True

    def step(self, streams: Sequence[dict[str, Any]]) -> list[Told]:
        ready = [each for each in streams if self._model.is_ready(each["stream"])]
        if self._together and ready:
            self._model.decode_streams([each["stream"] for each in ready])
        else:
            for each in ready:
                self._model.decode_stream(each["stream"])
        return [self._told(each, each in ready) for each in streams]

    def _told(self, each: dict[str, Any], went: bool) -> Told:
        if not went and not each["ends"]:
            return Told()
        text = self._model.get_result(each["stream"]).strip()
        if not each["ends"] or self._model.is_ready(each["stream"]):
            return Told(went, text)
        each |= {"stream": self._model.create_stream(), "ends": False}
        return Told(went, None, text)


class Ours:
    """Our engine: what its driver does in each step, without HTTP and Ray."""

    def __init__(self, bundle: Path, threads: int, *, vad: bool) -> None:
        from headpond.bundle.store import open_bundle  # noqa: PLC0415
        from headpond.engine import EngineSettings, Quantum  # noqa: PLC0415
        from headpond_workloads.speech import items  # noqa: PLC0415
        from headpond_workloads.speech.engine.load import load  # noqa: PLC0415

        self._items = items
        self._quantum = Quantum
        self._vad = vad
        self._engine = load(open_bundle(bundle), EngineSettings(state_bytes=2**30, threads=threads))

    def open(self) -> dict[str, Any]:
        # Where voice is told from silence, clips are still committed one by one.
        endpointing = self._items.Endpointing(silence_ms=1500) if self._vad else None
        listening = self._items.Listening(endpointing=endpointing)
        form = self._items.Format(rate_hz=RATE_HZ)
        return {"slot": self._engine.start(self._engine.plan(self._items.Stream(form, listening), "")),
                "idle": True, "ends": False, "said": []}  # fmt: skip

    def prepared(self, samples: Samples) -> Samples:
        return np.round(samples * 32_768.0).clip(-32_768, 32_767).astype("<i2")

    def add(self, stream: dict[str, Any], samples: Samples, *, ends: bool) -> None:
        given: list[Any] = [self._items.Sound(samples.tobytes())]
        if ends:
            given.append(self._items.Commit())
        self._engine.feed(stream["slot"], given)
        stream |= {"idle": False, "ends": ends}

    def step(self, streams: Sequence[dict[str, Any]]) -> list[Told]:
        ready = [each for each in streams if not each["idle"]]
        quanta = [self._quantum(slot=each["slot"], units=160) for each in ready]
        told = dict(zip(map(id, ready), self._engine.step(quanta) if quanta else [], strict=True))
        return [self._told(each, told.get(id(each))) for each in streams]

    def _told(self, each: dict[str, Any], progress: Any) -> Told:
        if progress is None:
            return Told()
        if progress.error is not None:
            raise progress.error
        each["idle"] = progress.idle
        partial = None
        for reading in progress.outputs:
            if isinstance(reading, self._items.Final):
                each["said"].append(reading.text)
            elif isinstance(reading, self._items.Partial):
                partial = reading.text
        if not (progress.idle and each["ends"]):
            return Told(progress.units > 0, partial)
        text, each["said"], each["ends"] = " ".join(each["said"]), [], False
        return Told(True, None, text.strip())


class Bare:
    """The networks of the model with nothing around them: what nobody can do without."""

    def __init__(self, bundle: Path, threads: int) -> None:
        import onnxruntime  # type: ignore[import-untyped] # noqa: PLC0415 - not of sherpa's

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._encoder, self._decoder, self._joiner = (
            onnxruntime.InferenceSession(bundle / f"{name}.onnx", options)
            for name in ("encoder", "decoder", "joiner")
        )

    def run(self, clips: Sequence[Sequence[Samples]]) -> dict[str, Any]:
        """Encode and join as many chunks as the clips have, with the silence after each."""
        streams = len(clips)
        samples = sum(len(clip) + TAIL for said in clips for clip in said)
        encoded, history = (_zeros(network, streams) for network in (self._encoder, self._decoder))
        names = [given.name for given in self._joiner.get_inputs()]
        cpu_s, began = time.process_time(), time.perf_counter()
        for _ in range(round(samples / CHUNK / streams)):
            rows = self._encoder.run(None, encoded)[0]
            said = self._decoder.run(None, history)[0]
            flat = rows.reshape(-1, rows.shape[-1])
            fed = (flat, np.repeat(said, rows.shape[1], axis=0))
            self._joiner.run(None, dict(zip(names, fed, strict=True)))
        return {"cpu_s": time.process_time() - cpu_s, "wall_s": time.perf_counter() - began}


def _zeros(network: Any, streams: int) -> dict[str, NDArray[Any]]:
    return {
        given.name: np.zeros(
            [size if isinstance(size, int) else streams for size in given.shape],
            np.int64 if "int64" in given.type else np.float32,
        )
        for given in network.get_inputs()
    }


def fast(listener: Listener, clips: Sequence[Sequence[Samples]]) -> dict[str, Any]:
    """Give each stream its next chunk as soon as all have heard theirs."""
    streams = [listener.open() for _ in clips]
    places = [[0, 0] for _ in clips]  # clip, sample
    texts: list[list[str]] = [[] for _ in clips]
    waits = [False] * len(clips)  # for the text of a clip that was given to its end
    cpu_s, began = time.process_time(), time.perf_counter()
    while any(place[0] < len(said) for place, said in zip(places, clips, strict=True)):
        for number, (place, said) in enumerate(zip(places, clips, strict=True)):
            if waits[number] or place[0] >= len(said):
                continue
            clip = said[place[0]]
            piece = clip[place[1] : place[1] + CHUNK]
            place[1] += len(piece)
            waits[number] = place[1] >= len(clip)
            listener.add(streams[number], piece, ends=waits[number])
        for number, told in enumerate(listener.step(streams)):
            if told.final is not None:
                texts[number].append(told.final)
                places[number] = [places[number][0] + 1, 0]
                waits[number] = False
    return {
        "cpu_s": time.process_time() - cpu_s,
        "wall_s": time.perf_counter() - began,
        "texts": texts,
    }


def floor(listener: Listener, clips: Sequence[Sequence[Samples]]) -> dict[str, Any]:
    """Return after how many seconds of each clip each of its partial texts can be said."""
    found: list[list[dict[str, float]]] = []
    for said in clips:
        stream = listener.open()
        found.append([])
        for clip in said:
            texts: dict[str, float] = {}
            for at, (piece, ends) in enumerate(_pieces([clip]), 1):
                listener.add(stream, piece, ends=ends)
                (told,) = listener.step([stream])
                if told.partial:
                    texts.setdefault(told.partial, at * PIECE / RATE_HZ)
            while told.final is None:
                (told,) = listener.step([stream])
            found[-1].append(texts)
    return {"texts": found}


@dataclass(slots=True)
class Speaker:
    """One stream that speaks in real time, and waits for a clip's text before the next one."""

    clips: Sequence[Sequence[tuple[Samples, bool]]]
    known: Sequence[dict[str, float]]
    begins: float
    clip: int = 0
    given: int = 0
    seen: str = ""

    @property
    def done(self) -> bool:
        return self.clip >= len(self.clips)

    def due(self, now: float) -> list[tuple[Samples, bool]]:
        """Return the pieces that were spoken by now."""
        spoken = int((now - self.begins) * RATE_HZ) // PIECE
        pieces = self.clips[self.clip][self.given : max(spoken, self.given)]
        self.given += len(pieces)
        return list(pieces)

    def hear(self, told: Told, now: float, partial_s: list[float], final_s: list[float]) -> None:
        """Note how late texts are."""
        if told.partial and told.partial != self.seen:
            self.seen = told.partial
            if told.partial in self.known[self.clip]:
                partial_s.append(now - self.begins - self.known[self.clip][told.partial])
        if told.final is not None:
            final_s.append(now - self.begins - len(self.clips[self.clip]) * PIECE / RATE_HZ)
            self.clip, self.given, self.seen, self.begins = self.clip + 1, 0, "", now


def paced(
    listener: Listener,
    clips: Sequence[Sequence[Samples]],
    known: Sequence[Sequence[dict[str, float]]],
) -> dict[str, Any]:
    """Give each stream its sound as it is spoken; time what comes back."""
    streams = [listener.open() for _ in clips]
    begin = time.perf_counter() + 0.1
    speakers = [
        Speaker(
            [_pieces([clip]) for clip in said],
            texts,
            begin + number / len(clips) * CHUNK / RATE_HZ,
        )
        for number, (said, texts) in enumerate(zip(clips, known, strict=True))
    ]
    partial_s: list[float] = []
    final_s: list[float] = []
    cpu_s = time.process_time()
    while going := [at for at, speaker in enumerate(speakers) if not speaker.done]:
        now = time.perf_counter()
        for at in going:
            for piece, ends in speakers[at].due(now):
                listener.add(streams[at], piece, ends=ends)
        told = listener.step([streams[at] for at in going])
        now = time.perf_counter()
        for at, each in zip(going, told, strict=True):
            speakers[at].hear(each, now, partial_s, final_s)
        if not any(each.went for each in told):
            time.sleep(0.001)
    return {
        "cpu_s": time.process_time() - cpu_s,
        "wall_s": time.perf_counter() - begin,
        "partial_s": partial_s,
        "final_s": final_s,
    }


def _pieces(said: Sequence[Samples]) -> list[tuple[Samples, bool]]:
    return [
        (clip[at : at + PIECE], at + PIECE >= len(clip))
        for clip in said
        for at in range(0, len(clip), PIECE)
    ]


def listener_of(who: str, bundle: Path, threads: int, vad: str) -> Listener:
    """Return one of the contenders."""
    if who.startswith("ours"):
        return Ours(bundle, threads, vad="vad" in who)
    return Sherpa(bundle, threads, together="alone" not in who, vad=vad if "vad" in who else None)


def main() -> None:
    """Answer commands until there are no more."""
    who, bundle, threads, vad = sys.argv[1:5]
    listener = listener_of(who, Path(bundle), int(threads), vad)
    sounds: dict[str, Samples] = {}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        for path in {path for stream in command["clips"] for path in stream} - sounds.keys():
            sounds[path] = listener.prepared(np.load(path))
        clips = [[sounds[path] for path in stream] for stream in command["clips"]]
        if command["do"] == "bare":
            answer = Bare(Path(bundle), int(threads)).run(clips)
        elif command["do"] == "paced":
            answer = paced(listener, clips, command["known"])
        else:
            answer = {"fast": fast, "floor": floor}[command["do"]](listener, clips)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
