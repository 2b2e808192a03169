"""From a prompt to token IDs, in the way the model was trained."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import cast

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from headpond.errors import InvalidRequest
from headpond_workloads.generation.engine.vocabulary import Vocabulary
from headpond_workloads.generation.items import Message, Prompt


class Tokenizer:
    """Renders chat templates and tokenizes; safe to call from several threads.

    Control tokens that are spelled out inside a message stay plain text. A prompt given as
    one text is the caller's own rendering: control tokens in it are control tokens, as in
    token IDs.
    """

    def __init__(
        self, backend: PreTrainedTokenizerFast, *, vocab_tokens: int, chat_template: str | None
    ) -> None:
        """Wrap a tokenizer.

        Args:
            backend: The tokenizer as transformers loads it.
            vocab_tokens: Rows of the model's embedding; larger IDs are refused.
            chat_template: Used instead of the tokenizer's own.
        """
        self._backend = backend
        self._vocab_tokens = vocab_tokens
        self._chat_template = chat_template or backend.chat_template
        self._lock = Lock()  # encoding sets options on the shared Rust object
        self.vocabulary = Vocabulary(backend.backend_tokenizer)

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the token IDs of a prompt.

        Raises:
            InvalidRequest: It is empty, holds IDs the model lacks, or the template refuses it.
        """
        if prompt.token_ids is not None:
            token_ids = self._checked(prompt.token_ids, prompt.param)
        elif prompt.text is not None:
            with self._lock:
                token_ids = self._backend.encode(prompt.text)
        else:
            token_ids = self._render(prompt.messages or (), prompt.param)
        if not token_ids:
            raise InvalidRequest("the prompt is empty; give at least one token", param=prompt.param)
        return token_ids

    def control_ids(self, tokens: Sequence[str]) -> frozenset[int]:
        """Return the IDs of tokens by their exact spelling; unknown ones are left out."""
        vocabulary = self._backend.get_vocab()
        return frozenset(vocabulary[token] for token in tokens if token in vocabulary)

    def _checked(self, token_ids: Sequence[int], param: str) -> list[int]:
        for token_id in token_ids:
            if not 0 <= token_id < self._vocab_tokens:
                raise InvalidRequest(
                    f"token ID {token_id} is outside the vocabulary (0 to {self._vocab_tokens - 1})",
                    param=param,
                )
        return list(token_ids)

    def _render(self, messages: Sequence[Message], param: str) -> list[int]:
        if not messages:
            raise InvalidRequest("there are no messages; give at least one", param=param)
        if self._chat_template is None:
            raise InvalidRequest("this model has no chat template; send a prompt", param=param)
        try:
            with self._lock:
                rendered = self._backend.apply_chat_template(
                    [_turn(message) for message in messages],
                    chat_template=self._chat_template,
                    add_generation_prompt=True,
                    sanitize_control_tokens=True,
                    return_dict=False,
                )
        except (TemplateError, ValueError) as error:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param=param
            ) from error
        return cast("list[int]", rendered)


def _turn(message: Message) -> dict[str, str]:
    turn = {"role": message.role, "content": message.content}
    return turn if message.name is None else turn | {"name": message.name}
