"""A small LSTM transducer whose state is all it keeps of the past.

In the form of icefall's `lstm_transducer_stateless` as sherpa-onnx runs it: the encoder takes
`CHUNK + CONTEXT` frames and goes on by `CHUNK`; the decoder sees the last two words.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from features import BINS

WIDTH = 192
LAYERS = 3
JOINER = 128
HISTORY = 2
SUBSAMPLING = 4
CONTEXT = 5
"""Frames beyond a multiple of 4 that two convolutions of width 3 and stride 2 need."""

CHUNK = 16
BLANK = 0


class Encoder(nn.Module):
    """Frames in, one vector for each 40 ms out; it never looks ahead of its frames."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(BINS, WIDTH, 3, stride=2)
        self.second = nn.Conv1d(WIDTH, WIDTH, 3, stride=2)
        self.norm = nn.LayerNorm(WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, dropout=0.1)
        self.out = nn.Linear(WIDTH, JOINER)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Encode frames.

        Args:
            x: Features [N, T, BINS].
            h: Hidden state [LAYERS, N, WIDTH].
            c: Cell state of the same shape.

        Returns:
            Vectors [N, (T - CONTEXT) / 4 rounded down, plus 1 where T - CONTEXT is no multiple,
            JOINER], and the next states.
        """
        frames = torch.relu(convolved(x * 0.2, self.first))
        frames = torch.relu(convolved(frames, self.second))
        steps = self.norm(frames.transpose(0, 1))
        hidden, (h, c) = self.lstm(steps, (h, c))
        return self.out((hidden + steps).transpose(0, 1)), h, c


def convolved(x: Tensor, convolution: nn.Conv1d) -> Tensor:
    """Convolve [N, T, channels] by width 3 and stride 2, as one product.

    onnxruntime convolves the few frames of a chunk stream by stream, and takes up to three
    times as long.
    """
    taps = torch.cat([x[:, at : x.shape[1] - 2 + at : 2] for at in range(3)], -1)
    return linear(taps, convolution.weight.transpose(1, 2).flatten(1), convolution.bias)


class Decoder(nn.Module):
    """The last words in, a vector out: no state."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, JOINER)
        self.mix = nn.Linear(HISTORY * JOINER, JOINER)

    def forward(self, y: Tensor) -> Tensor:
        """Return vectors [N, JOINER] for histories [N, HISTORY].

        Before the first word sherpa-onnx fills a history with -1, which counts as nothing.
        """
        mixed: Tensor = self.mix(torch.relu(self.words(y.clamp(min=BLANK)).flatten(1)))
        return mixed


class Joiner(nn.Module):
    """What was heard and what was said, to the next word or nothing."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.out = nn.Linear(JOINER, vocabulary)

    def forward(self, encoder_out: Tensor, decoder_out: Tensor) -> Tensor:
        """Return logits over the vocabulary for vectors that can be added."""
        logits: Tensor = self.out(torch.tanh(encoder_out + decoder_out))
        return logits


class Transducer(nn.Module):
    """All three."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder(vocabulary)
        self.joiner = Joiner(vocabulary)
        # Only for training: what was heard must be enough to name the words.
        self.heard = nn.Linear(JOINER, vocabulary)

    def forward(self, frames: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits for features [N, T, BINS] and words [N, U].

        Returns:
            Those of the joiner [N, T', U + 1, V], and of the encoder alone [N, T', V].
        """
        zero = frames.new_zeros(LAYERS, frames.shape[0], WIDTH)
        heard, _, _ = self.encoder(frames, zero, zero)
        padded = torch.nn.functional.pad(words, (HISTORY, 0), value=BLANK)
        histories = padded.unfold(1, HISTORY, 1)
        said = self.decoder(histories.flatten(0, 1)).unflatten(0, histories.shape[:2])
        return self.joiner(heard[:, :, None], said[:, None]), self.heard(heard)


def encoded_frames(frames: int) -> int:
    """Return how many vectors come of so many frames."""
    return ((frames - 1) // 2 - 1) // 2
