"""Greedy search of a CTC model: the likeliest token of each row, repetitions joined."""

from __future__ import annotations

from collections.abc import Sequence

from headpond_workloads.speech.engine.streaming.network import Emission, Floats

_BLANK = 0


class CtcSearch:
    """Rows are log probabilities of tokens; a path is the token of the row before."""

    def initial(self) -> int:
        """Return the path of a stream that begins."""
        return _BLANK

    def search(self, rows: Floats, paths: Sequence[int]) -> tuple[list[list[Emission]], list[int]]:
        """Go on through rows; see `Search`."""
        best = rows.argmax(-1)
        found = []
        for stream, path in enumerate(paths):
            token_ids = best[stream].tolist()
            steps = enumerate(zip([path, *token_ids[:-1]], token_ids, strict=True))
            found.append(
                [
                    Emission(token_id, row, float(rows[stream, row, token_id]))
                    for row, (before, token_id) in steps
                    if token_id not in {before, _BLANK}
                ]
            )
        return found, best[:, -1].tolist()
