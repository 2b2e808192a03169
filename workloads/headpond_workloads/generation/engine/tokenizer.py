"""From a prompt to token IDs, in the way the model was trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import cast

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from headpond.engine import Json
from headpond.errors import InvalidRequest
from headpond_workloads.generation.engine.tool_words import ToolWords, described
from headpond_workloads.generation.engine.turns import check_keys, options, turn
from headpond_workloads.generation.engine.vocabulary import Vocabulary, longest_bytes
from headpond_workloads.generation.items import (
    DetokenizeItem,
    Message,
    Prompt,
    TokenizeItem,
    Tokens,
)

_ENDING_TOKENS = 16
"""Enough to see with which mark a prompt ends."""


class Tokenizer:
    """Renders chat templates and tokenizes; safe to call from several threads.

    Control tokens that are spelled out inside a message stay plain text. A prompt given as
    one text is the caller's own rendering: control tokens in it are control tokens, as in
    token IDs.
    """

    def __init__(
        self,
        backend: PreTrainedTokenizerFast,
        *,
        vocab_tokens: int,
        chat_template: str | None,
        words: ToolWords | None = None,
    ) -> None:
        """Wrap a tokenizer.

        Args:
            backend: The tokenizer as transformers loads it.
            vocab_tokens: Rows of the model's embedding; larger IDs are refused.
            chat_template: Used instead of the tokenizer's own.
            words: Tell of tools where the template doesn't; None where there can't be any.
        """
        self._backend = backend
        self._vocab_tokens = vocab_tokens
        self._chat_template = chat_template
        self._words = words
        self._lock = Lock()  # encoding sets options on the shared Rust object
        self.vocabulary = Vocabulary(backend.backend_tokenizer)
        self._longest_bytes = longest_bytes(backend.backend_tokenizer, self.vocabulary)

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the token IDs of a prompt.

        Raises:
            InvalidRequest: It is empty, holds IDs the model lacks, or the template refuses it.
        """
        token_ids = self._encoded(prompt)
        if not token_ids:
            raise InvalidRequest("the prompt is empty; give at least one token", param=prompt.param)
        return token_ids

    def spelling(self, text: str) -> list[int]:
        """Return the tokens of a text, which may be empty, without any that are added to it."""
        return self._tokenized(text, add_special_tokens=False)

    def least_tokens(self, prompt: Prompt) -> int:
        """Return how many tokens a prompt has at least, without tokenizing it."""
        if prompt.token_ids is not None:
            return len(prompt.token_ids)
        if self._longest_bytes is None:
            return 0
        texts = [each.content.strip() for each in prompt.messages or ()]
        if prompt.text is not None:
            texts.append(prompt.text)
        return sum(len(text.encode(errors="replace")) for text in texts) // self._longest_bytes

    def ending(self, token_ids: Sequence[int]) -> str:
        """Return the text that the last few tokens spell, control tokens included."""
        return self.vocabulary.spelled(token_ids[-_ENDING_TOKENS:])

    def tokens(self, item: TokenizeItem | DetokenizeItem, context_tokens: int) -> Tokens:
        """Return the tokens of a prompt, which may be empty, or the text of tokens.

        Raises:
            InvalidRequest: It holds IDs the model lacks, or the template refuses it.
        """
        if isinstance(item, DetokenizeItem):
            token_ids = self._checked(item.token_ids, item.param)
            return self._spelled(token_ids, context_tokens)
        return self._spelled(self._encoded(item.prompt), context_tokens)

    def _spelled(self, token_ids: Sequence[int], context_tokens: int) -> Tokens:
        with self._lock:
            text = self._backend.decode(list(token_ids))
        return Tokens(
            token_ids=tuple(token_ids),
            pieces=tuple(map(self.vocabulary.text, token_ids)),
            text=cast("str", text),
            context_tokens=context_tokens,
        )

    def control_ids(self, tokens: Sequence[str]) -> frozenset[int]:
        """Return the IDs of tokens by their exact spelling; unknown ones are left out."""
        vocabulary = self._backend.get_vocab()
        return frozenset(vocabulary[token] for token in tokens if token in vocabulary)

    def _encoded(self, prompt: Prompt) -> list[int]:
        if prompt.token_ids is not None:
            return self._checked(prompt.token_ids, prompt.param)
        if prompt.text is None:
            return self._render(prompt)
        return self._tokenized(prompt.text, add_special_tokens=prompt.add_special_tokens)

    def _tokenized(self, text: str, *, add_special_tokens: bool) -> list[int]:
        with self._lock:
            token_ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens)
        return token_ids

    def _checked(self, token_ids: Sequence[int], param: str) -> list[int]:
        for token_id in token_ids:
            if not 0 <= token_id < self._vocab_tokens:
                raise InvalidRequest(
                    f"token ID {token_id} is outside the vocabulary (0 to {self._vocab_tokens - 1})",
                    param=param,
                )
        return list(token_ids)

    def _render(self, prompt: Prompt) -> list[int]:
        if not prompt.messages:
            raise InvalidRequest("there are no messages; give at least one", param=prompt.param)
        template = self._template(prompt)
        messages, tools = prompt.messages, prompt.tools
        knows_tools = "tools" in template
        if not knows_tools:
            messages = self._told(prompt)
            tools = ()
        syntax = self._words.syntax if self._words is not None else None
        turns = [turn(message, syntax) for message in messages]
        told = [described(tool) for tool in tools]
        documents = self._documents(prompt, template)
        keyed = [*turns, *told, *documents, options(prompt)]
        check_keys(keyed, self.vocabulary.control, prompt.param)
        # transformers types messages as texts alone; templates take calls and tools too.
        render = cast("Callable[..., list[int]]", self._backend.apply_chat_template)
        try:
            with self._lock:
                return render(
                    turns,
                    tools=told or None,
                    documents=documents or None,
                    chat_template=template,
                    add_generation_prompt=prompt.end == "answer",
                    continue_final_message=prompt.end == "inside",
                    sanitize_control_tokens=True,
                    return_dict=False,
                    **options(prompt),
                )
        except (TemplateError, ValueError, TypeError, RecursionError) as error:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param=prompt.param
            ) from error

    def _template(self, prompt: Prompt) -> str:
        try:
            return self._backend.get_chat_template(
                self._chat_template, [{}] if prompt.tools else None
            )
        except ValueError:
            raise InvalidRequest(
                "this model has no chat template; send a prompt", param=prompt.param
            ) from None

    def _documents(self, prompt: Prompt, template: str) -> list[dict[str, Json]]:
        if prompt.documents and "documents" not in template:
            raise InvalidRequest(
                "this model's chat template knows of no documents; put them into messages",
                param="documents",
            )
        return [dict(document) for document in prompt.documents]

    def _told(self, prompt: Prompt) -> tuple[Message, ...]:
        """Put tools, calls and results into words."""
        messages = prompt.messages or ()
        if self._words is not None:
            return tuple(self._words.tell(messages, prompt.tools))
        if prompt.tools:
            raise InvalidRequest("this model knows of no tools", param="tools")
        return messages
