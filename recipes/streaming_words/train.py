"""Train the model on synthetic voices; goes on from where it stopped.

python train.py --folder build --utterances 6000 --copies 3 --passes 6
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch
import torchaudio
from torch import Tensor

from features import fbank
from grammar import WORDS, sentence
from model import CHUNK, CONTEXT, Transducer, encoded_frames
from voices import TRAINING, add_noise, choose, disturb, speak

TOKENS = ("<blk>", "<sos/eos>", "<unk>", *WORDS)
NUMBER = {word: at for at, word in enumerate(TOKENS)}
BATCH = 32
CTC_PART = 0.4
SHARD = 250
"""Utterances that are synthesised at once."""
PADDING = CHUNK + CONTEXT

Example = tuple[np.ndarray[tuple[int, int], np.dtype[np.float16]], list[int]]


def examples(utterances: int, copies: int, seed: int) -> list[Example]:
    """Synthesise utterances and disturb each in several ways; some are noise without words."""
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    made: list[Example] = []
    for at in range(utterances):
        words = sentence(rng)
        spoken = speak(words, choose(TRAINING, rng), rng)
        made += [
            (fbank(disturb(spoken, noise)).astype(np.float16), _numbers(words))
            for _ in range(copies)
        ]
        if at % 12 == 0:
            length = int(16_000 * noise.uniform(1.0, 3.0))
            faint = (noise.standard_normal(length) * 10.0 ** noise.uniform(-5, -1.5)).astype(
                np.float32
            )
            made.append((fbank(add_noise(faint, 0.0, noise)).astype(np.float16), []))
    return made


def _numbers(words: list[str]) -> list[int]:
    return [NUMBER[word] for word in words]


def batches(made: list[Example], rng: random.Random) -> list[list[Example]]:
    """Return batches of about equal lengths in a random order."""
    ordered = sorted(made, key=lambda example: len(example[0]) + rng.random() * 40)
    grouped = [ordered[at : at + BATCH] for at in range(0, len(ordered), BATCH)]
    rng.shuffle(grouped)
    return grouped


def loss_of(model: Transducer, batch: list[Example]) -> Tensor:
    """Return the transducer's loss (Graves, 2012) on a batch, and some of the encoder's own.

    The second is CTC (Graves et al., 2006): it finds where words are long before the first.
    """
    longest = max(len(features) for features, _ in batch) + PADDING
    said = max(1, *(len(words) for _, words in batch))
    # What follows the end in a stream is near silence.
    x = torch.full((len(batch), longest, 80), -15.9)
    y = torch.zeros(len(batch), said, dtype=torch.int32)
    for row, (features, words) in enumerate(batch):
        x[row, : len(features)] = torch.from_numpy(features).float()
        y[row, : len(words)] = torch.tensor(words, dtype=torch.int32)
    lengths = torch.tensor([encoded_frames(len(f) + PADDING) for f, _ in batch], dtype=torch.int32)
    spoken = torch.tensor([len(words) for _, words in batch], dtype=torch.int32)
    joined, heard = model(_masked(x), y.long())
    loss: Tensor = torchaudio.functional.rnnt_loss(joined, y, lengths, spoken, blank=0, clamp=1.0)
    alone = torch.nn.functional.ctc_loss(
        heard.log_softmax(-1).transpose(0, 1),
        y.long(),
        lengths,
        spoken,
        zero_infinity=True,
        reduction="sum",
    )
    return loss + CTC_PART * alone / len(batch)


def _masked(x: Tensor) -> Tensor:
    """Hide a band and a stretch of each example (SpecAugment)."""
    x = x.clone()
    for row in x:
        low, width = random.randrange(70), random.randrange(1, 12)
        row[:, low : low + width] = row.mean()
        start = random.randrange(max(len(row) - 20, 1))
        row[start : start + random.randrange(1, 12)] = row.mean()
    return x


def load(folder: Path, shards: int, copies: int, until: float) -> list[Example] | None:
    """Return all examples, synthesised where they are not there yet; None when time is up."""
    made: list[Example] = []
    for shard in range(shards):
        data = folder / f"examples-{shard}.pt"
        if not data.exists():
            if time.monotonic() > until:
                return None
            torch.save(examples(SHARD, copies, seed=shard), data)
        made += torch.load(data, weights_only=False)  # our own file of a minute ago
    return made


def main() -> None:
    """Train for so many passes, or minutes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("build"))
    parser.add_argument("--utterances", type=int, default=6000)
    parser.add_argument("--copies", type=int, default=3)
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    until = time.monotonic() + 60 * options.minutes
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = options.folder / "checkpoint.pt"
    made = load(options.folder, options.utterances // SHARD, options.copies, until)
    if made is None:
        return
    random.seed(11)
    torch.manual_seed(11)
    model = Transducer(len(TOKENS))
    rate = 2e-3
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-3)
    per_pass = -(-len(made) // BATCH)
    total = per_pass * options.passes
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total, pct_start=0.1)
    done = 0
    if kept.exists():
        state = torch.load(kept, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        done = state["done"]
    model.train()
    mean = 0.0
    while done < total and time.monotonic() < until:
        order = batches(made, random.Random(done // per_pass))
        for batch in order[done % per_pass :]:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            schedule.step()
            done += 1
            mean = 0.95 * mean + 0.05 * float(loss.detach()) if mean else float(loss.detach())
            if done % 25 == 0:
                print(f"{done}/{total} loss {mean:.3f}", flush=True)
            if time.monotonic() > until:
                break
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**state, "schedule": schedule.state_dict(), "done": done}, kept)


if __name__ == "__main__":
    main()
