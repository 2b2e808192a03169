from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class RequestOutputKind(Enum):
    DELTA = 1


class SamplingParams:
    def __init__(
        self,
        *,
        max_tokens: int,
        min_tokens: int,
        stop_token_ids: Sequence[int],
        logprobs: int | None,
        prompt_logprobs: int | None,
        output_kind: RequestOutputKind,
        **others: object,
    ) -> None:
        self.max_tokens = max_tokens
        self.min_tokens = min_tokens
        self.stop_token_ids = stop_token_ids
        self.logprobs = logprobs
        self.prompt_logprobs = prompt_logprobs
        self._all_stop_token_ids = set(stop_token_ids)
        self._bad_words_token_ids: list[list[int]] = []
        self._others = others

    @property
    def given(self) -> dict[str, object]:
        """All that was asked for, as JSON has it."""
        return {
            **self._others,
            "max_tokens": self.max_tokens,
            "min_tokens": self.min_tokens,
            "stop_token_ids": sorted(self.stop_token_ids),
            "logprobs": self.logprobs,
            "prompt_logprobs": self.prompt_logprobs,
            "all_stop_token_ids": sorted(self._all_stop_token_ids),
            "bad_words": sorted(self._bad_words_token_ids),
        }
