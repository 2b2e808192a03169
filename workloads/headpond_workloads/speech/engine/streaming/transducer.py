"""Greedy search of a transducer, over the rows of several streams at once.

Most rows say nothing. So all rows of all streams are joined at once with what each stream
said last, and only after a token are the rows that follow it joined again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Generic, Protocol, TypeVar

import numpy as np

from headpond_workloads.speech.engine.streaming.network import Emission, Floats


class Saying(Protocol):
    """What a stream said last, as a predictor keeps it."""

    @property
    def predicted(self) -> Floats:
        """What the predictor makes of it, [width]."""
        ...


Said = TypeVar("Said", bound=Saying)


class Predictor(Protocol[Said]):
    """The part of a transducer that knows what was said."""

    def initial(self) -> Said:
        """Return what a stream begins with."""
        ...

    def extended(self, said: Sequence[Said], token_ids: Sequence[int]) -> list[Said]:
        """Add a token to each."""
        ...


Join = Callable[[Floats, Floats], Floats]
"""Makes logits [rows, vocabulary] of rows and what was predicted, each [rows, width]."""


class TransducerSearch(Generic[Said]):
    """At most one token comes with a row, as in sherpa-onnx."""

    def __init__(self, predictor: Predictor[Said], join: Join, silent: frozenset[int]) -> None:
        """Take the networks.

        Args:
            predictor: Knows what was said.
            join: Compares it with what is heard.
            silent: The blank, and tokens that are never said.
        """
        self._predictor = predictor
        self._join = join
        self._silent = np.array(sorted(silent))

    def initial(self) -> Said:
        """Return the path of a stream that begins."""
        return self._predictor.initial()

    def search(
        self, rows: Floats, paths: Sequence[Said]
    ) -> tuple[list[list[Emission]], list[Said]]:
        """Go on through rows; see `Search`."""
        found: list[list[Emission]] = [[] for _ in paths]
        said = list(paths)
        begin = dict.fromkeys(range(len(paths)), 0)
        while begin:
            spoke = self._first_tokens(rows, said, begin)
            for stream, emission in spoke.items():
                found[stream].append(emission)
            if spoke:
                token_ids = [emission.token_id for emission in spoke.values()]
                after = self._predictor.extended([said[stream] for stream in spoke], token_ids)
                for stream, each in zip(spoke, after, strict=True):
                    said[stream] = each
            begin = {
                stream: emission.row + 1
                for stream, emission in spoke.items()
                if emission.row + 1 < rows.shape[1]
            }
        return found, said

    def _first_tokens(
        self, rows: Floats, said: Sequence[Said], begin: dict[int, int]
    ) -> dict[int, Emission]:
        """Return the first token of each stream from a row on, where there is one."""
        heard = np.concatenate([rows[stream, first:] for stream, first in begin.items()])
        counts = [rows.shape[1] - first for first in begin.values()]
        predicted = np.repeat(np.stack([said[each].predicted for each in begin]), counts, axis=0)
        logits = self._join(heard, predicted)
        best = logits.argmax(-1)
        speaks = np.flatnonzero((best[:, None] != self._silent).all(axis=1)).tolist()
        if not speaks:
            return {}
        starts = dict(zip(begin, accumulate(counts, initial=0), strict=False))
        streams = np.repeat(list(begin), counts).tolist()
        spoke: dict[int, Emission] = {}
        for at in speaks:
            stream = streams[at]
            if stream not in spoke:
                token_id = int(best[at])
                row = begin[stream] + at - starts[stream]
                spoke[stream] = Emission(token_id, row, _log_prob(logits[at], token_id))
        return spoke


def _log_prob(logits: Floats, token_id: int) -> float:
    largest = float(logits.max())
    return float(logits[token_id]) - largest - float(np.log(np.exp(logits - largest).sum()))
