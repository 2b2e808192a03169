"""The chat dialect: `POST /v1/chat/completions` in and out of generation's own terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from headpond.dialect import Ask, Heading, ItemEvent, StreamWriter
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.generation.chunks import SLOT, ChunkTemplate, ChunkWriter
from headpond_workloads.generation.items import (
    ChosenToken,
    GenerationItem,
    Message,
    Prompt,
    TextDelta,
    TokenLogprob,
)
from headpond_workloads.generation.outcome import Outcome, fold
from headpond_workloads.generation.schema import LEAST_LOGPROB, Usage, refuse_unsupported
from headpond_workloads.generation.schema_chat import (
    AssistantMessage,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChatMessage,
    ChoiceLogprobs,
    ChunkChoice,
    Delta,
    TokenLogprobs,
    TopLogprob,
)

UNSUPPORTED = frozenset(
    {"audio", "function_call", "functions", "modalities", "moderation", "reasoning_effort"}
    | {"response_format", "store", "tool_choice", "tools", "verbosity", "web_search_options"}
)
HARMLESS: Mapping[str, tuple[JsonValue, ...]] = {
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),
    "verbosity": ("medium",),
}


class ChatExchange:
    """One conversation, and the choices that go on from it."""

    def __init__(self, request: ChatCompletionRequest) -> None:
        """Read a request of the right types."""
        self._request = request

    def ask(self) -> Ask:
        """Return one item per choice; each further choice has the next seed.

        Raises:
            InvalidRequest: Fields that contradict each other.
            UnsupportedParameter: Something the dialect knows and this version does not do.
        """
        request = self._request
        request.check_stream()
        refuse_unsupported(request.model_dump(include=set(UNSUPPORTED)), HARMLESS)
        max_tokens, param = self._limit()
        logprobs = self._logprobs()
        prompt = Prompt(messages=_messages(request.messages), param="messages")
        items = tuple(
            GenerationItem(
                prompt=prompt,
                max_output_tokens=max_tokens,
                sampling=request.sampling(sample),
                stop=request.stop or (),
                ignore_eos=bool(request.ignore_eos),
                logprobs=logprobs,
                max_tokens_param=param,
            )
            for sample in range(request.choices)
        )
        return Ask(model=request.model, items=items, stream=bool(request.stream))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> ChatCompletion:
        """Fold every event of a finished call into one body.

        Raises:
            HeadpondError: A choice failed.
        """
        choices = self._request.choices
        outcomes, usage = fold(events, items=choices, samples=choices)
        with_logprobs = bool(self._request.logprobs)
        return ChatCompletion(
            id=_id(heading),
            created=heading.created_s,
            model=heading.model,
            choices=[_choice(i, outcome, with_logprobs) for i, outcome in enumerate(outcomes)],
            usage=usage,
            system_fingerprint=heading.fingerprint,
        )

    def stream(self, heading: Heading) -> StreamWriter:
        """Return the writer of a stream."""
        include_usage = self._request.include_usage
        form = ChatChunks(heading, include_usage=include_usage)
        return ChunkWriter(form, samples=self._request.choices, include_usage=include_usage)

    def _limit(self) -> tuple[int | None, str]:
        request = self._request
        if request.max_completion_tokens is None:
            return request.max_tokens, "max_tokens"
        if request.max_tokens is not None:
            raise InvalidRequest(
                "max_tokens and max_completion_tokens cannot both be set", param="max_tokens"
            )
        return request.max_completion_tokens, "max_completion_tokens"

    def _logprobs(self) -> int | None:
        request = self._request
        if request.logprobs:
            return request.top_logprobs or 0
        if request.top_logprobs is not None:
            raise InvalidRequest("top_logprobs needs logprobs to be true", param="top_logprobs")
        return None


def _id(heading: Heading) -> str:
    return f"chatcmpl-{heading.request_id}"


def _messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    return tuple(_message(message, f"messages.{i}") for i, message in enumerate(messages))


def _message(message: ChatMessage, path: str) -> Message:
    for field in ("tool_calls", "function_call", "audio"):
        if getattr(message, field):
            raise UnsupportedParameter(
                f"{field} of messages is not supported", param=f"{path}.{field}"
            )
    if message.content is None:
        raise InvalidRequest("content must be a string or text parts", param=f"{path}.content")
    # Templates know `system` alone; `developer` is the newer word for the same turn.
    role = "system" if message.role == "developer" else message.role
    return Message(role=role, content=_text(message, path), name=message.name)


def _text(message: ChatMessage, path: str) -> str:
    """Join the text parts with nothing in between, as if they had been one string."""
    texts = []
    for number, part in enumerate(message.content or ()):
        if part.type != "text":
            raise UnsupportedParameter(
                "this model reads text only; use parts of type text", param=f"{path}.content"
            )
        if part.text is None:
            raise InvalidRequest("a text part needs text", param=f"{path}.content.{number}.text")
        texts.append(part.text)
    return "".join(texts)


def _choice(index: int, outcome: Outcome, with_logprobs: bool) -> ChatChoice:
    return ChatChoice(
        index=index,
        message=AssistantMessage(content=outcome.text),
        logprobs=_logprobs(outcome.logprobs) if with_logprobs else None,
        finish_reason=outcome.finish_reason,
    )


def _logprobs(tokens: Sequence[ChosenToken]) -> ChoiceLogprobs:
    return ChoiceLogprobs(content=[_token(token) for token in tokens], refusal=None)


def _token(token: ChosenToken) -> TokenLogprobs:
    chosen = token.chosen
    return TokenLogprobs(
        token=chosen.token,
        logprob=max(chosen.logprob, LEAST_LOGPROB),
        bytes=list(chosen.raw),
        top_logprobs=[_top(other) for other in token.top],
    )


def _top(token: TokenLogprob) -> TopLogprob:
    logprob = max(token.logprob, LEAST_LOGPROB)
    return TopLogprob(token=token.token, logprob=logprob, bytes=list(token.raw))


class ChatChunks:
    """The chunks of one streamed conversation: role first, reason last, both once.

    Choices begin in the order of their indexes, whichever has text first: OpenAI's own
    accumulator (`openai.lib.streaming.chat`) fails on a choice that skips another.
    """

    def __init__(self, heading: Heading, *, include_usage: bool) -> None:
        """Repeat `heading` in each chunk, with usage null when it comes in the end."""
        self._heading = heading
        self._include_usage = include_usage
        self._begun: list[ChunkTemplate] = []

    def chunks(self, index: int, delta: TextDelta) -> list[str]:
        """Render what a step added to a choice: its text, and after that its end."""
        if not (delta.text or delta.logprobs or delta.finish_reason):
            return []
        rendered = []
        begins = len(self._begun) <= index
        while len(self._begun) < index:
            rendered.append(self._begin(TextDelta(text="")))
        if begins:
            rendered.append(self._begin(delta))
        elif delta.logprobs:
            rendered.append(self._text(index, Delta(content=delta.text), delta.logprobs))
        elif delta.text:
            rendered.append(self._begun[index].render(delta.text))
        if delta.finish_reason is not None:
            end = ChunkChoice(
                index=index, delta=Delta(), logprobs=None, finish_reason=delta.finish_reason
            )
            rendered.append(_dump(self._chunk([end])))
        return rendered

    def usage(self, usage: Usage) -> str:
        """Render the chunk without choices that tells the usage."""
        return _dump(self._chunk([], usage))

    def _begin(self, delta: TextDelta) -> str:
        """Render the first chunk of the next choice, and keep what its others look like."""
        index = len(self._begun)
        plain = ChunkChoice(
            index=index, delta=Delta(content=SLOT), logprobs=None, finish_reason=None
        )
        self._begun.append(ChunkTemplate(self._chunk([plain])))
        first = Delta(role="assistant", content=delta.text, refusal=None)
        return self._text(index, first, delta.logprobs)

    def _text(self, index: int, delta: Delta, tokens: Sequence[ChosenToken]) -> str:
        logprobs = _logprobs(tokens) if tokens else None
        choice = ChunkChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=None)
        return _dump(self._chunk([choice]))

    def _chunk(self, choices: list[ChunkChoice], usage: Usage | None = None) -> ChatCompletionChunk:
        chunk = ChatCompletionChunk(
            id=_id(self._heading),
            object="chat.completion.chunk",
            created=self._heading.created_s,
            model=self._heading.model,
            system_fingerprint=self._heading.fingerprint,
            choices=choices,
        )
        if self._include_usage:
            chunk.usage = usage
        return chunk


def _dump(chunk: ChatCompletionChunk) -> str:
    return chunk.model_dump_json(exclude_unset=True)
