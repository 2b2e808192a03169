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


class PromptLogprob(BaseModel):
    """A token that came, or might have, in one place of a prompt, as vLLM tells it."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""For each token of a prompt the likeliest tokens, and the one that came, by their IDs; the
rank is null where it came and is none of the likeliest. The first token has null."""
