"""The word error rate of an exported model, by sherpa-onnx: voices it never heard, and people.

python score.py --model ../../bundles/streaming-words --people /usr/share/pocketsphinx/test/data

People: the clips within the grammar of Debian's pocketsphinx-testdata.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import sherpa_onnx

from grammar import sentence
from voices import HELD_OUT, RATE_HZ, Samples, choose, disturb, speak

PEOPLE = {
    "cards/001.wav": "ten of clubs",
    "cards/002.wav": "four queen of clubs",
    "cards/003.wav": "seven of clubs",
    "cards/004.wav": "five five",
    "cards/005.wav": "eight of spades four of clubs seven of hearts",
    "goforward.raw": "go forward ten meters",
    "tidigits/dhd.2934z.raw": "two nine three four zero",
}


def errors(said: list[str], heard: list[str]) -> int:
    """Return the least number of words to insert, delete or replace (Levenshtein, 1966)."""
    row = list(range(len(heard) + 1))
    for at, word in enumerate(said, 1):
        corner, row[0] = row[0], at
        for to, other in enumerate(heard, 1):
            corner, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, corner + (word != other))
    return row[-1]


def recogniser(model: Path) -> sherpa_onnx.OnlineRecognizer:
    """Return sherpa-onnx's streaming recogniser, greedy, on one thread."""
    return sherpa_onnx.OnlineRecognizer.from_transducer(
        tokens=str(model / "tokens.txt"),
        encoder=str(model / "encoder.onnx"),
        decoder=str(model / "decoder.onnx"),
        joiner=str(model / "joiner.onnx"),
        num_threads=1,
        decoding_method="greedy_search",
    )


def hear(recognizer: sherpa_onnx.OnlineRecognizer, samples: Samples) -> list[str]:
    """Return what is heard in samples that come as a stream."""
    stream = recognizer.create_stream()
    padded = np.concatenate([samples, np.zeros(RATE_HZ // 2, np.float32)])
    for at in range(0, len(padded), 1_600):
        stream.accept_waveform(RATE_HZ, padded[at : at + 1_600])
        while recognizer.is_ready(stream):
            recognizer.decode_stream(stream)
    stream.input_finished()
    while recognizer.is_ready(stream):
        recognizer.decode_stream(stream)
    words: list[str] = recognizer.get_result(stream).lower().split()
    return words


def main() -> None:
    """Print both rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--people", type=Path, default=None)
    parser.add_argument("--utterances", type=int, default=200)
    options = parser.parse_args()
    recognizer = recogniser(options.model)
    rng, noise = random.Random(5), np.random.default_rng(5)
    wrong = total = 0
    for _ in range(options.utterances):
        words = sentence(rng)
        heard = hear(recognizer, disturb(speak(words, choose(HELD_OUT, rng), rng), noise))
        wrong, total = wrong + errors(words, heard), total + len(words)
    print(f"held-out voices: {wrong / total:.3f} of {total} words")
    if options.people is None:
        return
    wrong = total = 0
    for name, said in PEOPLE.items():
        content = (options.people / name).read_bytes()
        at = 44 if name.endswith(".wav") else 0
        samples = np.frombuffer(content[at:], np.int16).astype(np.float32) / 32_768.0
        heard = hear(recognizer, samples)
        missed = errors(said.split(), heard)
        wrong, total = wrong + missed, total + len(said.split())
        print(f"  {name}: {' '.join(heard)!r} for {said!r}")
    print(f"people: {wrong / total:.3f} of {total} words")


if __name__ == "__main__":
    main()
