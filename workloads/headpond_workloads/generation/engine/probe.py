"""Whether a forward computes what the model means, tried before it serves.

The seam to transformers is an attention function by name, and the native forward is a
reading of some architectures. A model that mixes tokens elsewhere too (recurrent or
convolutional layers), or needs what a forward does not do, would give nonsense without an
error. So two short sequences are computed packed, and again apart by transformers alone.
"""

from __future__ import annotations

import numpy as np

from headpond.errors import BundleError
from headpond_workloads.generation.engine.forward import Runner, Span
from headpond_workloads.generation.engine.reading import Reading

_TOLERANCE = {"float32": 0.01, "bfloat16": 0.2, "float16": 0.1}
"""Largest error of the logits relative to their spread (both root mean square).

Rounding stays well below, and a token that sees a wrong one is near 1.
"""

_QUANTIZED_TOLERANCE = 1.0
"""Nonsense is at 1.4, the spread of the difference of two unrelated logits."""


def check_forward(reading: Reading, runner: Runner, *, quantized: bool = False) -> None:
    """Compare packed, chunked and paged with plain.

    Args:
        reading: Says what transformers computes.
        runner: Computes the model over a cache of which the blocks 0 and 1 are free.
        quantized: Whether weights were rounded, so that only nonsense is refused.

    Raises:
        BundleError: They differ.
    """
    plain = reading.plain_logits
    first, second = probe_sequences(reading.vocab_tokens)
    # One at once, one in a chunk and a decode.
    chunk = Span(token_ids=second[:-1], start=0, blocks=[1], logits=0)
    last = Span(token_ids=second[-1:], start=len(second) - 1, blocks=[1], logits=1)
    whole = Span(token_ids=first, start=0, blocks=[0], logits=1)
    steps = ([whole, chunk], [last])
    paged = np.concatenate([runner.forward(step).values() for step in steps])
    error = float((paged - plain).std() / plain.std())
    if not error < (_QUANTIZED_TOLERANCE if quantized else _TOLERANCE[reading.dtype]):
        raise BundleError(
            f"{reading.architecture} can't be served: the paged forward changes its logits "
            f"(relative error {error:.3f})",
            param="execution.architecture",
        )


def probe_sequences(vocab_tokens: int) -> tuple[list[int], list[int]]:
    """Return the tokens of two sequences."""
    token_ids: list[int] = np.random.default_rng(0).integers(vocab_tokens, size=22).tolist()
    return token_ids[:9], token_ids[9:]
