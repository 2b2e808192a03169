"""From a prompt to token IDs, in the way the model was trained."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from threading import Lock
from typing import cast

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from headpond.engine import Json
from headpond.errors import InvalidRequest
from headpond_workloads.generation.engine.tool_syntax import described, told_of_tools
from headpond_workloads.generation.engine.vocabulary import Vocabulary
from headpond_workloads.generation.items import (
    DetokenizeItem,
    Message,
    Prompt,
    TokenizeItem,
    Tokens,
)

_OWN_VARIABLES = frozenset(
    inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters
) | {"messages", "tools", "bos_token", "eos_token"}
"""Variables and settings of a template that a request can't set."""


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
            token_ids = self._render(prompt)
        if not token_ids:
            raise InvalidRequest("the prompt is empty; give at least one token", param=prompt.param)
        return token_ids

    def tokens(self, item: TokenizeItem | DetokenizeItem, context_tokens: int) -> Tokens:
        """Return the tokens of a prompt, or the text of tokens.

        Raises:
            InvalidRequest: As `encode`.
        """
        if isinstance(item, DetokenizeItem):
            token_ids = self._checked(item.token_ids, item.param)
            return self._spelled(token_ids, context_tokens)
        prompt = item.prompt
        if prompt.messages is not None:
            token_ids = self._render(prompt, add_generation_prompt=item.add_generation_prompt)
        elif prompt.text is not None:
            with self._lock:
                token_ids = self._backend.encode(
                    prompt.text, add_special_tokens=item.add_special_tokens
                )
        else:
            token_ids = self.encode(prompt)
        return self._spelled(token_ids, context_tokens)

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

    def _checked(self, token_ids: Sequence[int], param: str) -> list[int]:
        for token_id in token_ids:
            if not 0 <= token_id < self._vocab_tokens:
                raise InvalidRequest(
                    f"token ID {token_id} is outside the vocabulary (0 to {self._vocab_tokens - 1})",
                    param=param,
                )
        return list(token_ids)

    def _render(self, prompt: Prompt, *, add_generation_prompt: bool = True) -> list[int]:
        if not prompt.messages:
            raise InvalidRequest("there are no messages; give at least one", param=prompt.param)
        if self._chat_template is None:
            raise InvalidRequest(
                "this model has no chat template; send a prompt", param=prompt.param
            )
        messages, tools = prompt.messages, prompt.tools
        knows_tools = "tools" in str(self._chat_template)
        if not knows_tools:
            messages = tuple(told_of_tools(messages, tools))
        # transformers types messages as texts alone; templates take calls and tools too.
        render = cast("Callable[..., list[int]]", self._backend.apply_chat_template)
        try:
            with self._lock:
                return render(
                    [_turn(message) for message in messages],
                    tools=[described(tool) for tool in tools] if knows_tools and tools else None,
                    chat_template=self._chat_template,
                    add_generation_prompt=add_generation_prompt,
                    sanitize_control_tokens=True,
                    return_dict=False,
                    **_options(prompt),
                )
        except (TemplateError, ValueError) as error:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param=prompt.param
            ) from error


def _options(prompt: Prompt) -> dict[str, Json]:
    """Return further variables of the template; none that this module sets itself.

    Raises:
        InvalidRequest: Names the first such variable.
    """
    for name in prompt.template_options:
        if name in _OWN_VARIABLES or not name.isidentifier():
            raise InvalidRequest(
                f"chat_template_kwargs can't set {name!r}", param="chat_template_kwargs"
            )
    return dict(prompt.template_options)


def _turn(message: Message) -> dict[str, Json]:
    turn: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.name is not None:
        turn["name"] = message.name
    if message.reasoning is not None:
        turn["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": _loaded(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return turn


def _loaded(arguments: str) -> Json:
    """Return arguments as templates want them: an object, or the text when it is none."""
    try:
        value: Json = json.loads(arguments)
    except ValueError:
        return arguments
    return value
