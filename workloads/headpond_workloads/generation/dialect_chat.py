"""The chat dialect: `POST /v1/chat/completions` in and out of generation's own terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from headpond.dialect import Ask, Heading, ItemEvent, StreamWriter
from headpond.errors import InvalidRequest
from headpond.units import Work
from headpond_workloads.generation.chunks import ChunkFrame, ChunkWriter
from headpond_workloads.generation.dialect_chat_stream import ChatChunks, chat_reason
from headpond_workloads.generation.dialect_constraint import (
    read_constraint,
    read_response_format,
)
from headpond_workloads.generation.dialect_logprobs import (
    check_prompt_logprobs,
    entries,
    prompt_entries,
)
from headpond_workloads.generation.dialect_messages import read_messages
from headpond_workloads.generation.dialect_template import prompt_end, template_options
from headpond_workloads.generation.dialect_tools import (
    Toolbox,
    check_choice_of_none,
    older_toolbox,
    read_tools,
    toolbox,
)
from headpond_workloads.generation.items import Prompt, ToolCall
from headpond_workloads.generation.outcome import Outcome, fold
from headpond_workloads.generation.schema_chat import (
    AssistantMessage,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChoiceLogprobs,
)
from headpond_workloads.generation.schema_logprobs import PromptLogprobs
from headpond_workloads.generation.schema_tools import FunctionCall, ToolCallMessage

UNSUPPORTED = frozenset(
    {
        "add_special_tokens",
        "audio",
        "best_of",
        "echo",
        "modalities",
        "moderation",
        "prediction",
        "store",
        "verbosity",
        "web_search_options",
    }
)
HARMLESS: Mapping[str, tuple[JsonValue, ...]] = {
    "best_of": (1,),
    "modalities": (["text"],),
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
        request.refuse_unsupported(UNSUPPORTED, HARMLESS)
        check_prompt_logprobs(request)
        max_tokens, param = self._limit()
        logprobs = self._logprobs()
        tools = self._toolbox()
        constraint = read_constraint(request, read_response_format(request.response_format))
        prompt = Prompt(
            messages=read_messages(request.messages),
            tools=tools.tools,
            documents=request.documents or (),
            template_options=template_options(
                request.reasoning_effort, request.chat_template_kwargs
            ),
            end=prompt_end(
                request.messages,
                begins=request.add_generation_prompt,
                continues=request.continue_final_message,
            ),
            most_tokens=request.most_tokens,
            param="messages",
        )
        items = tuple(
            replace(
                request.item(prompt, sample),
                max_output_tokens=max_tokens,
                logprobs=logprobs,
                # All choices have one prompt, whose log-probabilities are told once.
                prompt_logprobs=None if sample else request.prompt_logprobs,
                constraint=constraint,
                tool_choice=tools.choice,
                parallel_tool_calls=tools.parallel,
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
        return ChatCompletion(
            id=_id(heading),
            created=heading.created_s,
            model=heading.model,
            choices=[self._choice(index, outcome) for index, outcome in enumerate(outcomes)],
            usage=usage,
            system_fingerprint=heading.fingerprint,
            prompt_logprobs=self._prompt_logprobs(outcomes[0]),
        )

    def stream(self, heading: Heading) -> StreamWriter:
        """Return the writer of a stream."""
        include_usage = self._request.include_usage
        blank = ChatCompletionChunk(
            id=_id(heading),
            object="chat.completion.chunk",
            created=heading.created_s,
            model=heading.model,
            system_fingerprint=heading.fingerprint,
            choices=[],
        )
        frame = ChunkFrame(blank, include_usage=include_usage)
        by_id = bool(self._request.return_tokens_as_token_ids)
        form = ChatChunks(frame, older=self._is_older, by_id=by_id)
        samples = self._request.choices
        return ChunkWriter(frame, form, samples=samples, include_usage=include_usage)

    @property
    def _is_older(self) -> bool:
        """Whether calls are answered in the form that came before tools."""
        return bool(self._request.functions)

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

    def _toolbox(self) -> Toolbox:
        request = self._request
        if not request.functions:
            check_choice_of_none(request.function_call)
            tools = read_tools(request.tools or ())
            return toolbox(tools, request.tool_choice, request.parallel_tool_calls)
        for field in ("tools", "tool_choice"):
            if getattr(request, field):
                raise InvalidRequest(f"functions and {field} cannot both be set", param=field)
        return older_toolbox(request.functions, request.function_call)

    def _prompt_logprobs(self, outcome: Outcome) -> PromptLogprobs | None:
        if self._request.prompt_logprobs is None:
            return None
        return prompt_entries(outcome.logprobs[: outcome.prompt_logprobs])

    def _choice(self, index: int, outcome: Outcome) -> ChatChoice:
        logprobs = None
        if self._request.logprobs:
            by_id = bool(self._request.return_tokens_as_token_ids)
            content = entries(outcome.logprobs[outcome.prompt_logprobs :], by_id=by_id)
            logprobs = ChoiceLogprobs(content=content, refusal=None)
        return ChatChoice(
            index=index,
            message=_message(outcome, older=self._is_older),
            logprobs=logprobs,
            finish_reason=chat_reason(outcome.finish_reason, older=self._is_older),
        )


def _id(heading: Heading) -> str:
    return f"chatcmpl-{heading.request_id}"


def _message(outcome: Outcome, *, older: bool) -> AssistantMessage:
    calls = outcome.tool_calls
    message = AssistantMessage(
        content=outcome.text if outcome.text or not calls else None,
        reasoning_content=outcome.reasoning or None,
    )
    if calls and older:
        message.function_call = _function(calls[0])
    elif calls:
        message.tool_calls = [
            ToolCallMessage(id=call.call_id, function=_function(call)) for call in calls
        ]
    return message


def _function(call: ToolCall) -> FunctionCall:
    return FunctionCall(name=call.name, arguments=call.arguments)
