"""The responses dialect: `POST /v1/responses` in and out of generation's own terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from pydantic import JsonValue

from headpond.dialect import Ask, Heading, ItemEvent, StreamWriter
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.generation.dialect_constraint import read_constraint, read_format
from headpond_workloads.generation.dialect_responses_input import read_input
from headpond_workloads.generation.dialect_responses_output import Output
from headpond_workloads.generation.dialect_responses_stream import ResponseWriter
from headpond_workloads.generation.dialect_responses_whole import render
from headpond_workloads.generation.dialect_template import template_options
from headpond_workloads.generation.dialect_tools import Toolbox, read_functions, toolbox
from headpond_workloads.generation.items import Constraint, FinishReason, Prompt
from headpond_workloads.generation.outcome import UsageCount, deltas
from headpond_workloads.generation.schema_responses import Response, ResponseRequest
from headpond_workloads.generation.schema_tools import FunctionParam

UNSUPPORTED = frozenset(
    {
        "background",
        "conversation",
        "max_tool_calls",
        "moderation",
        "previous_response_id",
        "prompt",
        "prompt_logprobs",
        "return_tokens_as_token_ids",
        "truncation",
    }
)
HARMLESS: Mapping[str, tuple[JsonValue, ...]] = {"truncation": ("disabled",)}
LOGPROBS = "message.output_text.logprobs"
"""What `include` holds when log-probabilities are asked for."""

INCLUDABLE = frozenset(
    {
        LOGPROBS,
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
"""What `include` may hold; all but the first ask for what no response here has."""


class ResponseExchange:
    """One input, and the response to it; nothing of either is kept."""

    def __init__(self, request: ResponseRequest) -> None:
        """Read a request of the right types."""
        self._request = request

    def ask(self) -> Ask:
        """Return one item.

        Raises:
            InvalidRequest: Fields that contradict each other.
            UnsupportedParameter: Something the dialect knows and this version does not do.
        """
        request = self._request
        request.check_stream()
        self._refuse_unsupported()
        effort = request.reasoning.effort if request.reasoning is not None else None
        prompt = Prompt(
            messages=read_input(request.input, request.instructions),
            tools=self._tools.tools,
            template_options=template_options(effort, request.chat_template_kwargs),
            most_tokens=request.most_tokens,
            param="input",
        )
        item = replace(
            request.item(prompt),
            max_output_tokens=request.max_output_tokens,
            logprobs=self._logprobs(),
            constraint=read_constraint(request, self._format()),
            tool_choice=self._tools.choice,
            parallel_tool_calls=self._tools.parallel,
            max_tokens_param="max_output_tokens",
        )
        return Ask(model=request.model, items=(item,), stream=bool(request.stream))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Response:
        """Fold every event of a finished call into one body.

        Raises:
            HeadpondError: The item failed.
        """
        output = Output(heading.request_id)
        count = UsageCount(1)
        reason: FinishReason = "stop"
        for item, delta in deltas(events):
            output.add(delta)
            if delta.usage is not None:
                count.add(item, delta.usage)
            reason = delta.finish_reason or reason
        return render(self._request, self._tools, heading, output, reason, count.total())

    def stream(self, heading: Heading) -> StreamWriter:
        """Return the writer of a stream."""
        whole = partial(render, self._request, self._tools, heading)
        return ResponseWriter(Output(heading.request_id), whole)

    def _refuse_unsupported(self) -> None:
        request = self._request
        request.refuse_unsupported(UNSUPPORTED, HARMLESS)
        for at, wanted in enumerate(request.include or ()):
            if wanted not in INCLUDABLE:
                raise UnsupportedParameter("this cannot be included", param=f"include.{at}")
        verbosity = request.text.verbosity if request.text is not None else None
        if verbosity not in (None, "medium"):
            raise UnsupportedParameter("only medium is supported", param="text.verbosity")

    @cached_property
    def _tools(self) -> Toolbox:
        request = self._request
        functions = []
        for at, tool in enumerate(request.tools or ()):
            if tool.type != "function":
                raise UnsupportedParameter("only functions are supported", param=f"tools.{at}.type")
            if tool.name is None:
                raise InvalidRequest("a function needs a name", param=f"tools.{at}.name")
            function = FunctionParam(
                name=tool.name,
                description=tool.description,
                parameters=tool.parameters,
                strict=tool.strict,
            )
            functions.append((function, f"tools.{at}"))
        # Functions of this dialect are strict unless they say otherwise.
        tools = read_functions(functions, strict=True)
        return toolbox(tools, request.tool_choice, request.parallel_tool_calls)

    def _format(self) -> Constraint | None:
        text = self._request.text
        if text is None or text.format is None:
            return None
        wanted, path = text.format, "text.format"
        if wanted.type == "json_schema" and wanted.name is None:
            raise InvalidRequest("the type json_schema needs it", param=f"{path}.name")
        schema_path = f"{path}.schema"
        return read_format(wanted.type, wanted.schema_, path=path, schema_path=schema_path)

    def _logprobs(self) -> int | None:
        request = self._request
        if request.top_logprobs or LOGPROBS in (request.include or ()):
            return request.top_logprobs or 0
        return None
