"""From a prompt to token IDs, in the way the model was trained."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import TemplateError
from tokenizers import Tokenizer as Backend

from headpond.engine import Json
from headpond.errors import BundleError, InvalidRequest
from headpond_workloads.generation.engine.chat_template import ChatTemplate
from headpond_workloads.generation.engine.control_tokens import ControlTokens
from headpond_workloads.generation.engine.reading import TokenizerReading
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

_HERE = "\U000f0002"
"""A private character: where the last message ends that the model goes on with."""


class Tokenizer:
    """Renders chat templates and tokenizes; safe to call from several threads.

    Control tokens that are spelled out inside a message stay plain text. A prompt given as
    one text is the caller's own rendering: control tokens in it are control tokens, as in
    token IDs.
    """

    def __init__(
        self,
        reading: TokenizerReading,
        *,
        vocab_tokens: int,
        chat_template: str | None,
        words: ToolWords | None = None,
    ) -> None:
        """Wrap a tokenizer.

        Args:
            reading: The tokenizer as transformers loads it.
            vocab_tokens: Rows of the model's embedding; larger IDs are refused.
            chat_template: Used instead of the tokenizer's own.
            words: Tell of tools where the template doesn't; None where there can't be any.

        Raises:
            BundleError: A template is none, or tokens have no exact bytes.
        """
        self._reading = reading
        self._backend = Backend.from_str(reading.backend)
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = reading.splits_special
        self._vocab_tokens = vocab_tokens
        self._special: dict[str, Json] = {
            role: token if isinstance(token, str) else [*token]
            for role, token in reading.special_tokens.items()
        }
        self._templates = self._compiled(chat_template)
        self._words = words
        self.vocabulary = Vocabulary(self._backend)
        self._longest_bytes = longest_bytes(self._backend, self.vocabulary)

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
        text = self._backend.decode(list(token_ids), skip_special_tokens=False)
        return Tokens(
            token_ids=tuple(token_ids),
            pieces=tuple(map(self.vocabulary.text, token_ids)),
            text=text,
            context_tokens=context_tokens,
        )

    def control_ids(self, tokens: Sequence[str]) -> frozenset[int]:
        """Return the IDs of tokens by their exact spelling; unknown ones are left out."""
        found = map(self._backend.token_to_id, tokens)
        return frozenset(each for each in found if each is not None)

    def _encoded(self, prompt: Prompt) -> list[int]:
        if prompt.token_ids is not None:
            return self._checked(prompt.token_ids, prompt.param)
        if prompt.text is None:
            return self._render(prompt)
        return self._tokenized(prompt.text, add_special_tokens=prompt.add_special_tokens)

    def _tokenized(self, text: str, *, add_special_tokens: bool) -> list[int]:
        token_ids: list[int] = self._backend.encode(text, add_special_tokens=add_special_tokens).ids
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
        template, control = self._template(prompt)
        messages, tools = prompt.messages, prompt.tools
        knows_tools = "tools" in template.source
        if not knows_tools:
            messages = self._told(prompt)
            tools = ()
        syntax = self._words.syntax if self._words is not None else None
        turns = [turn(message, syntax) for message in messages]
        told = [described(tool) for tool in tools]
        documents = self._documents(prompt, template.source)
        own = options(prompt)
        check_keys([*turns, *told, *documents, own], self.vocabulary.control, prompt.param)
        marked = [control.mark(each) for each in turns]
        variables: dict[str, Json] = {
            **self._special,
            **{name: control.mark(value) for name, value in own.items()},
            "messages": _open_ended(marked) if prompt.end == "inside" else marked,
            "tools": control.mark([*told]) if told else None,
            "documents": control.mark([*documents]) if documents else None,
            "add_generation_prompt": prompt.end == "answer",
        }
        try:
            text = template.render(variables)
            if prompt.end == "inside":
                text = _cut(text)
            return control.encode(self._backend, text)
        except (TemplateError, ValueError, TypeError, RecursionError) as error:
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {error}", param=prompt.param
            ) from error

    def _template(self, prompt: Prompt) -> tuple[ChatTemplate, ControlTokens]:
        """Return the template for a prompt, and what only it may write."""
        wanted = [*(["tool_use"] if prompt.tools else []), "default"]
        for name in wanted:
            if name in self._templates:
                return self._templates[name]
        raise InvalidRequest("this model has no chat template; send a prompt", param=prompt.param)

    def _compiled(self, own: str | None) -> dict[str, tuple[ChatTemplate, ControlTokens]]:
        """Compile the bundle's own template, or else those of the tokenizer, by name."""
        sources = self._reading.templates
        if own is not None:
            sources = {"default": sources.get(own, own)}
        try:
            return {name: self._with_control(ChatTemplate(each)) for name, each in sources.items()}
        except TemplateError as error:
            raise BundleError(
                f"the chat template is none: {error}", param="input.chat_template"
            ) from error

    def _with_control(self, template: ChatTemplate) -> tuple[ChatTemplate, ControlTokens]:
        """Return a template with the tokens that nobody else may write.

        They are the special ones, and added ones that the tokenizer lists, or that stand in
        the template where it has no list (but for white space).
        """
        added = self._backend.get_added_tokens_decoder().values()
        listed = self._reading.chat_control_tokens
        control = [
            each.content
            for each in added
            if each.special
            or (
                each.content in listed
                if listed is not None
                else not each.content.isspace()
                and any(each.content in literal for literal in template.literals)
            )
        ]
        return template, ControlTokens(control, [each.content for each in added])

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


def _open_ended(turns: list[Json]) -> list[Json]:
    """Return turns with a sign at the end of the last one's text."""
    last = turns[-1]
    if not isinstance(last, dict) or not isinstance(last.get("content"), str):
        raise InvalidRequest("the last message has no text to go on with", param="messages")
    return [*turns[:-1], {**last, "content": f"{last['content']}{_HERE}"}]


def _cut(text: str) -> str:
    """Return a rendered text up to the sign that `_open_ended` set.

    Raises:
        ValueError: The template left it out.
    """
    before, sign, _ = text.rpartition(_HERE)
    if not sign:
        raise ValueError("it leaves out the last message")
    return before
