"""The decoder and the joiner of a stateless transducer in ONNX, as icefall exports them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headpond.errors import BundleError
from headpond_workloads.speech.engine.streaming.network import Floats
from headpond_workloads.speech.engine.streaming.onnx_session import OnnxSession

BLANK = 0

_MOST_KNOWN = 4096
"""Contexts whose predictions are kept: most of what people say is said again."""


@dataclass(frozen=True, slots=True)
class Context:
    """The last tokens of a stream, and what the decoder makes of them."""

    token_ids: tuple[int, ...]
    predicted: Floats


class OnnxPredictor:
    """Knows the last few tokens: `context_size` of its metadata."""

    def __init__(self, session: OnnxSession) -> None:
        """Take the network, from tokens [streams, context].

        Raises:
            BundleError: It has other inputs.
        """
        check_inputs(session, 1)
        self._session = session
        # sherpa-onnx begins so: the first places are none of the vocabulary's.
        begin = (*[-1] * (session.number("context_size") - 1), BLANK)
        (self._initial,) = self._predicted([begin])
        self._known: dict[tuple[int, ...], Context] = {}

    def initial(self) -> Context:
        """Return what a stream begins with."""
        return self._initial

    def extended(self, said: Sequence[Context], token_ids: Sequence[int]) -> list[Context]:
        """Add a token to each, and forget its oldest."""
        contexts = [
            (*each.token_ids[1:], token_id) for each, token_id in zip(said, token_ids, strict=True)
        ]
        unknown = list(dict.fromkeys(each for each in contexts if each not in self._known))
        if unknown:
            if len(self._known) + len(unknown) > _MOST_KNOWN:
                self._known.clear()
                unknown = list(dict.fromkeys(contexts))
            self._known |= zip(unknown, self._predicted(unknown), strict=True)
        return [self._known[each] for each in contexts]

    def _predicted(self, contexts: Sequence[tuple[int, ...]]) -> list[Context]:
        (values,) = self._session.run([np.array(contexts, np.int64)])
        floats = values.astype(np.float32, copy=False)
        # Copies, so that none holds all the others that were computed with it.
        return [
            Context(token_ids, each.copy())
            for token_ids, each in zip(contexts, floats, strict=True)
        ]


class OnnxJoiner:
    """Makes logits of rows and predictions."""

    def __init__(self, session: OnnxSession) -> None:
        """Take the network.

        Raises:
            BundleError: It has other inputs.
        """
        check_inputs(session, 2)
        self._session = session

    def __call__(self, rows: Floats, predicted: Floats) -> Floats:
        """Return logits, [rows, vocabulary]."""
        (logits,) = self._session.run([rows, predicted])
        return logits.astype(np.float32, copy=False)


def check_inputs(session: OnnxSession, count: int) -> None:
    """Refuse a network of another kind.

    Raises:
        BundleError: It does not have so many inputs.
    """
    if len(session.inputs) != count or len(session.outputs) != 1:
        raise BundleError(
            f"{session.name} should have {count} inputs and one output",
            param=f"artifacts.{session.name}",
        )
