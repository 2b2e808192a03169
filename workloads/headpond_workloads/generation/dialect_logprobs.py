"""Log-probabilities on the wire: one entry per token, or legacy columns."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence

from headpond_workloads.generation.items import ChosenToken, TokenLogprob
from headpond_workloads.generation.schema_completions import CompletionLogprobs
from headpond_workloads.generation.schema_logprobs import TokenLogprobs, TopLogprob

LEAST_LOGPROB = -9999.0
"""What the dialects say of tokens too unlikely for a number; JSON has no infinity."""


def entries(tokens: Sequence[ChosenToken]) -> list[TokenLogprobs]:
    """Return one entry per token, with exact bytes."""
    return [
        TokenLogprobs(
            token=token.chosen.token,
            logprob=_finite(token.chosen) or 0.0,
            bytes=list(token.chosen.raw),
            top_logprobs=[_alternative(other) for other in token.top],
        )
        for token in tokens
    ]


def _alternative(token: TokenLogprob) -> TopLogprob:
    return TopLogprob(token=token.token, logprob=_finite(token) or 0.0, bytes=list(token.raw))


class LogprobColumns:
    """Legacy log-probabilities of one choice; offsets go on from chunk to chunk."""

    def __init__(self, *, with_top: bool) -> None:
        """Start at the choice's first character, with or without alternatives."""
        self._with_top = with_top
        self._offset = 0
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def render(self, tokens: Sequence[ChosenToken]) -> CompletionLogprobs:
        """Return the columns of the next tokens."""
        return CompletionLogprobs(
            tokens=[_name(token.chosen) for token in tokens],
            token_logprobs=[_finite(token.chosen) for token in tokens],
            top_logprobs=[_top(token) for token in tokens] if self._with_top else None,
            text_offset=[self._advance(token.chosen.raw) for token in tokens],
        )

    def _advance(self, raw: bytes) -> int:
        """Return where a token starts; bytes amid a character start where it does."""
        start = self._offset
        self._offset += len(self._decoder.decode(raw))
        return start


def _finite(token: TokenLogprob) -> float | None:
    """Return a log-probability as JSON can express it; a prompt's first token has none."""
    return None if token.logprob is None else max(token.logprob, LEAST_LOGPROB)


def _name(token: TokenLogprob) -> str:
    """Return a token's characters; a control token outside the text has its own spelling."""
    if not token.raw:
        return token.token
    try:
        return token.raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.raw)


def _top(token: ChosenToken) -> dict[str, float] | None:
    """Return the alternatives and, where it is none of them, the chosen token."""
    if token.chosen.logprob is None:
        return None
    return {_name(each): _finite(each) or 0.0 for each in (*token.top, token.chosen)}
