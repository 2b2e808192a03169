"""The dialects of `POST /tokenize` and `POST /detokenize`."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.dialect import Ask, Heading, ItemEvent, StreamWriter
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.generation.dialect_messages import read_messages
from headpond_workloads.generation.dialect_template import template_options
from headpond_workloads.generation.dialect_tools import read_tools
from headpond_workloads.generation.items import DetokenizeItem, Prompt, TokenizeItem, Tokens
from headpond_workloads.generation.outcome import outputs
from headpond_workloads.generation.schema_tokenize import (
    Detokenization,
    DetokenizeRequest,
    Tokenization,
    TokenizeRequest,
)


class TokenizeExchange:
    """One prompt, and its tokens."""

    def __init__(self, request: TokenizeRequest) -> None:
        """Read a request of the right types."""
        self._request = request

    def ask(self) -> Ask:
        """Return one item.

        Raises:
            InvalidRequest: There is not exactly one of a prompt and messages.
            UnsupportedParameter: The last message is to be gone on with.
        """
        request = self._request
        if request.continue_final_message:
            raise UnsupportedParameter("only false is supported", param="continue_final_message")
        special = request.add_special_tokens
        item = TokenizeItem(
            prompt=self._prompt(),
            # Chat templates spell the special tokens out.
            add_special_tokens=request.messages is None if special is None else special,
            add_generation_prompt=request.add_generation_prompt is not False,
        )
        return Ask(model=request.model, items=(item,))

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

    def stream(self, heading: Heading) -> StreamWriter:
        """Refuse: the route does not stream."""
        raise UnsupportedParameter("tokens are not streamed", param="stream")

    def _prompt(self) -> Prompt:
        request = self._request
        if request.messages is None:
            if request.prompt is None:
                raise InvalidRequest("give a prompt or messages", param="prompt")
            return Prompt(text=request.prompt)
        if request.prompt is not None:
            raise InvalidRequest("prompt and messages cannot both be set", param="messages")
        return Prompt(
            messages=read_messages(request.messages),
            tools=read_tools(request.tools or ()),
            template_options=template_options(None, request.chat_template_kwargs),
            param="messages",
        )


class DetokenizeExchange:
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

    def stream(self, heading: Heading) -> StreamWriter:
        """Refuse: the route does not stream."""
        raise UnsupportedParameter("text of tokens is not streamed", param="stream")


def _only(events: Sequence[ItemEvent]) -> Tokens:
    (output,) = outputs(events)
    if not isinstance(output.payload, Tokens):
        raise TypeError(f"the answer is Tokens, not {type(output.payload).__name__}")
    return output.payload
