"""The dialects of `POST /tokenize` and `POST /detokenize`."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.dialect import Ask, Exchange, Heading, ItemEvent
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.generation.dialect_messages import read_messages
from headpond_workloads.generation.dialect_template import prompt_end, template_options
from headpond_workloads.generation.dialect_tools import read_tools
from headpond_workloads.generation.items import DetokenizeItem, Prompt, TokenizeItem, Tokens
from headpond_workloads.generation.outcome import outputs
from headpond_workloads.generation.schema_foreign import OF_PROMPTS, check_foreign
from headpond_workloads.generation.schema_tokenize import (
    Detokenization,
    DetokenizeRequest,
    Tokenization,
    TokenizeRequest,
)


class TokenizeExchange(Exchange):
    """One prompt, and its tokens."""

    def __init__(self, request: TokenizeRequest) -> None:
        """Read a request of the right types."""
        self._request = request

    def ask(self) -> Ask:
        """Return one item.

        Raises:
            InvalidRequest: There is not exactly one of a prompt and messages.
            UnsupportedParameter: Special tokens are to be added to a conversation, or a field
                is not done that would change the tokens.
        """
        request = self._request
        check_foreign(request.model_extra or {}, type(request).model_fields, OF_PROMPTS)
        return Ask(model=request.model, items=(TokenizeItem(prompt=self._prompt()),))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Tokenization:
        """Return the tokens.

        Raises:
            HeadpondError: The item failed.
        """
        tokens = _only(events)
        return Tokenization(
            count=len(tokens.token_ids),
            max_model_len=tokens.context_tokens,
            tokens=list(tokens.token_ids),
            token_strs=list(tokens.pieces) if self._request.return_token_strs else None,
        )

    def _prompt(self) -> Prompt:
        request = self._request
        if request.messages is None:
            if request.prompt is None:
                raise InvalidRequest("give a prompt or messages", param="prompt")
            special = request.add_special_tokens is not False
            return Prompt(text=request.prompt, add_special_tokens=special)
        if request.prompt is not None:
            raise InvalidRequest("prompt and messages cannot both be set", param="messages")
        if request.add_special_tokens:
            raise UnsupportedParameter(
                "chat templates spell the special tokens out", param="add_special_tokens"
            )
        return Prompt(
            messages=read_messages(request.messages),
            tools=read_tools(request.tools or ()),
            template_options=template_options(None, request.chat_template_kwargs),
            end=prompt_end(
                request.messages,
                begins=request.add_generation_prompt,
                continues=request.continue_final_message,
            ),
            param="messages",
        )


class DetokenizeExchange(Exchange):
    """Some tokens, and their text."""

    def __init__(self, request: DetokenizeRequest) -> None:
        """Read a request of the right types."""
        self._request = request

    def ask(self) -> Ask:
        """Return one item."""
        item = DetokenizeItem(token_ids=self._request.tokens)
        return Ask(model=self._request.model, items=(item,))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Detokenization:
        """Return the text.

        Raises:
            HeadpondError: The item failed.
        """
        return Detokenization(prompt=_only(events).text)


def _only(events: Sequence[ItemEvent]) -> Tokens:
    (output,) = outputs(events)
    if not isinstance(output.payload, Tokens):
        raise TypeError(f"the answer is Tokens, not {type(output.payload).__name__}")
    return output.payload
