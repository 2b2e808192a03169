"""Wire types of log-probabilities in chat and responses."""

from __future__ import annotations

from pydantic import BaseModel


class TopLogprob(BaseModel):
    """An alternative to a token; `bytes` are exact where `token` shows U+FFFD."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprobs(BaseModel):
    """A token of the answer, with its likeliest alternatives."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]
