"""From a text to the token IDs that are computed: prompt, tokens, what is cut off."""

from __future__ import annotations

from dataclasses import dataclass

from headpond.errors import ContextLengthExceeded, InvalidRequest
from headpond_workloads.embedding.engine.sentence import Sentences
from headpond_workloads.embedding.items import EmbedItem, Truncation
from headpond_workloads.encoders.tokenizer import Tokenizer
from headpond_workloads.encoders.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Makes token IDs of texts, as a model was trained.

    Attributes:
        tokenizer: The model's.
        sentences: Its prompts.
        max_tokens: The longest text, special tokens included.
    """

    tokenizer: Tokenizer
    sentences: Sentences
    max_tokens: int

    def tokens(self, item: EmbedItem) -> Tokens:
        """Return the tokens of a text that are computed.

        Raises:
            InvalidRequest: It is no text, or asks for a prompt or a length there can't be.
            ContextLengthExceeded: It is too long, and not to be cut; says both numbers.
        """
        token_ids = self._token_ids(item, self._prompt(item))
        frame = self.tokenizer.single
        most = self._most(item)
        room = most - frame.tokens
        if len(token_ids) <= room:
            return frame.around(token_ids)
        if item.truncation is Truncation.NONE:
            raise ContextLengthExceeded(
                f"the text has {len(token_ids) + frame.tokens} tokens, special ones included, "
                f"and {most} are allowed; shorten it",
                param=item.param,
            )
        cut = token_ids[:room] if item.truncation is Truncation.END else token_ids[-room:]
        return frame.around(cut)

    def _most(self, item: EmbedItem) -> int:
        if item.max_tokens is None:
            return self.max_tokens
        least = self.tokenizer.single.tokens + 1
        if item.max_tokens < least:
            raise InvalidRequest(
                f"{item.max_tokens} tokens are too few; with special ones it takes {least}",
                param=item.max_tokens_param,
            )
        return min(item.max_tokens, self.max_tokens)

    def _prompt(self, item: EmbedItem) -> str:
        """Return what is put before a text."""
        prompts = self.sentences.prompts
        if item.prompt is None:
            preferred = (name for name in item.preferred_prompts if name in prompts)
            name = next(preferred, self.sentences.default_prompt)
            return "" if name is None else prompts[name]
        if item.prompt not in prompts:
            known = ", ".join(sorted(prompts)) or "none"
            raise InvalidRequest(
                f"this model has no prompt {item.prompt!r}; it has {known}", param="prompt_name"
            )
        return prompts[item.prompt]

    def _token_ids(self, item: EmbedItem, prompt: str) -> list[int]:
        text = item.text
        if isinstance(text, str):
            return self.tokenizer.encode(prompt + text, item.param)
        before = self.tokenizer.encode(prompt, item.param)
        return before + self.tokenizer.encode(text, item.param)
