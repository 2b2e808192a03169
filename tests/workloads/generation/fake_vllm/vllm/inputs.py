from __future__ import annotations

from typing import TypedDict


class TokensInput(TypedDict):
    prompt_token_ids: list[int]
    cache_salt: str | None


def tokens_input(prompt_token_ids: list[int], *, cache_salt: str | None = None) -> TokensInput:
    return {"prompt_token_ids": prompt_token_ids, "cache_salt": cache_salt}
