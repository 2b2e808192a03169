"""The sound of one stream on its way to the model: unpacked, resampled, cut into chunks."""

from __future__ import annotations

from collections import deque

import numpy as np

from headpond_workloads.speech.engine.front.pcm import Samples, Unpacker
from headpond_workloads.speech.engine.front.resampling import Resampler
from headpond_workloads.speech.items import Encoding, Format

_MS_PER_S = 1000


class Intake:
    """One stream's samples at the model's rate, that wait to be taken.

    Attributes:
        ended: Whether no more will be added.
    """

    def __init__(self, form: Format | None, rate_hz: int) -> None:
        """Take bytes of this format in, and give samples at `rate_hz` out.

        Args:
            form: How the bytes are written; None for float32 at `rate_hz`, one channel.
            rate_hz: The model's rate.
        """
        form = form or Format(encoding=Encoding.FLOAT32, rate_hz=rate_hz)
        self._rate_hz = rate_hz
        self._from_hz = form.rate_hz
        self._unpacker = Unpacker(form)
        self._resampler = Resampler(form.rate_hz, rate_hz)
        self._came = 0  # samples at their own rate
        self._ready = 0  # the same, at the model's
        self._pieces: deque[Samples] = deque()
        self._waiting = 0
        self.ended = False

    @classmethod
    def whole(cls, samples: Samples, rate_hz: int) -> Intake:
        """Return the intake of a recording that was decoded to the model's rate."""
        intake = cls(None, rate_hz)
        intake._keep(samples)
        intake.ended = True
        return intake

    @property
    def waiting(self) -> int:
        """How many samples can be taken now."""
        return self._waiting

    @property
    def buffered_ms(self) -> int:
        """How long the sound is that can be taken now; whole milliseconds."""
        return self._waiting * _MS_PER_S // self._rate_hz

    @property
    def drained(self) -> bool:
        """Whether all was taken, and no more will be added."""
        return self.ended and not self._waiting

    def add(self, content: bytes) -> None:
        """Take in more bytes; they may end within a sample."""
        samples = self._unpacker.unpack(content)
        self._came += len(samples)
        self._keep(self._resampler.add(samples))

    def cut(self) -> None:
        """Let all that came be taken, and nothing of it be heard in what follows.

        The clock stays that of the samples that came, however often the sound is cut: each
        stretch is rounded to where it ends in the whole.
        """
        self._keep(self._rounded(self._resampler.end()))
        self._resampler = Resampler(self._from_hz, self._rate_hz)

    def clear(self) -> None:
        """Cut the sound off, within a sample too: what follows begins with a whole one."""
        self._unpacker.forget()
        self.cut()

    def end(self) -> None:
        """Take in that no more bytes follow; the rest of a sample is dropped."""
        if not self.ended:
            self.ended = True
            self._keep(self._resampler.end())

    def take(self, most: int, least: int | None = None) -> Samples | None:
        """Return the next samples; None while there are too few, and when the sound is over.

        Args:
            most: How many at most.
            least: How many at least, unless the sound ends; `most` unless given.
        """
        if self._waiting < (most if least is None else least) and not self.ended:
            return None
        wanted = min(most, self._waiting)
        if not wanted:
            return None
        taken: list[Samples] = []
        while wanted:
            piece = self._pieces.popleft()
            if len(piece) > wanted:
                self._pieces.appendleft(piece[wanted:])
                piece = piece[:wanted]
            taken.append(piece)
            wanted -= len(piece)
            self._waiting -= len(piece)
        return taken[0] if len(taken) == 1 else np.concatenate(taken)

    def _rounded(self, rest: Samples) -> Samples:
        """Return the last samples of a stretch, so many that its end is where it should be."""
        end = (2 * self._came * self._rate_hz + self._from_hz) // (2 * self._from_hz)
        wanted = max(end - self._ready, 0)
        return np.pad(rest[:wanted], (0, max(wanted - len(rest), 0)))

    def _keep(self, samples: Samples) -> None:
        if len(samples):
            self._pieces.append(samples)
            self._waiting += len(samples)
            self._ready += len(samples)
