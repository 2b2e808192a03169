"""Log-probabilities on the wire: one entry per token, or legacy columns."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence

from headpond.errors import InvalidRequest
from headpond_workloads.generation.items import ChosenToken, TokenLogprob
from headpond_workloads.generation.schema import SamplingRequest
from headpond_workloads.generation.schema_completions import CompletionLogprobs
from headpond_workloads.generation.schema_logprobs import (
    PromptLogprob,
    PromptLogprobs,
    TokenLogprobs,
    TopLogprob,
)

LEAST_LOGPROB = -9999.0
"""What the dialects say of tokens too unlikely for a number; JSON has no infinity."""


def entries(tokens: Sequence[ChosenToken], *, by_id: bool = False) -> list[TokenLogprobs]:
    """Return one entry per token, with exact bytes; tokens read as their IDs where asked for."""
    return [
        TokenLogprobs(
            token=_numbered(token.chosen) if by_id else token.chosen.token,
            logprob=_finite(token.chosen) or 0.0,
            bytes=list(token.chosen.raw),
            top_logprobs=[_alternative(other, by_id=by_id) for other in token.top],
        )
        for token in tokens
    ]


def _alternative(token: TokenLogprob, *, by_id: bool) -> TopLogprob:
    return TopLogprob(
        token=_numbered(token) if by_id else token.token,
        logprob=_finite(token) or 0.0,
        bytes=list(token.raw),
    )


def check_prompt_logprobs(request: SamplingRequest) -> None:
    """Refuse log-probabilities of a prompt in a stream, which has no place for them.

    Raises:
        InvalidRequest: Names the field.
    """
    if request.stream and request.prompt_logprobs is not None:
        raise InvalidRequest("prompt_logprobs cannot be streamed", param="prompt_logprobs")


def prompt_entries(tokens: Sequence[ChosenToken]) -> PromptLogprobs:
    """Return what could have come in each token's place, by ID; null for the first."""
    return [None if token.chosen.logprob is None else _ranked(token) for token in tokens]


def _ranked(token: ChosenToken) -> dict[str, PromptLogprob]:
    found = {str(token.chosen.token_id): _with_rank(token.chosen, None)}
    for rank, each in enumerate(token.top, start=1):
        found[str(each.token_id)] = _with_rank(each, rank)
    return found


def _with_rank(token: TokenLogprob, rank: int | None) -> PromptLogprob:
    return PromptLogprob(logprob=_finite(token) or 0.0, rank=rank, decoded_token=token.token)


def _numbered(token: TokenLogprob) -> str:
    return f"token_id:{token.token_id}"


class LogprobColumns:
    """Legacy log-probabilities of one choice; offsets go on from chunk to chunk."""

    def __init__(self, *, with_top: bool, by_id: bool = False) -> None:
        """Start at the choice's first character, with or without alternatives.

        Args:
            with_top: Whether there are alternatives.
            by_id: Whether tokens read as their IDs.
        """
        self._with_top = with_top
        self._name = _numbered if by_id else _name
        self._offset = 0
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def render(self, tokens: Sequence[ChosenToken]) -> CompletionLogprobs:
        """Return the columns of the next tokens."""
        return CompletionLogprobs(
            tokens=[self._name(token.chosen) for token in tokens],
            token_logprobs=[_finite(token.chosen) for token in tokens],
            top_logprobs=[self._top(token) for token in tokens] if self._with_top else None,
            text_offset=[self._advance(token.chosen.raw) for token in tokens],
        )

    def _top(self, token: ChosenToken) -> dict[str, float] | None:
        """Return the alternatives and, where it is none of them, the chosen token."""
        if token.chosen.logprob is None:
            return None
        return {self._name(each): _finite(each) or 0.0 for each in (*token.top, token.chosen)}

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
