"""The legacy completions dialect: `POST /v1/completions` in and out of generation's terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from headpond.dialect import Ask, Heading, ItemEvent, StreamWriter
from headpond.errors import InvalidRequest
from headpond.units import Work
from headpond_workloads.generation.chunks import SLOT, ChunkFrame, ChunkTemplate, ChunkWriter
from headpond_workloads.generation.dialect_constraint import (
    read_constraint,
    read_response_format,
)
from headpond_workloads.generation.dialect_logprobs import (
    LogprobColumns,
    check_prompt_logprobs,
    prompt_entries,
)
from headpond_workloads.generation.items import (
    ChosenToken,
    Constraint,
    GenerationItem,
    Prompt,
    TextDelta,
)
from headpond_workloads.generation.outcome import Outcome, fold
from headpond_workloads.generation.schema_completions import (
    DEFAULT_MAX_TOKENS,
    Completion,
    CompletionChoice,
    CompletionFinishReason,
    CompletionRequest,
    PromptSource,
)
from headpond_workloads.generation.schema_fields import MAX_ITEMS


class CompletionExchange:
    """Some prompts, and the choices of each: choice `prompt * n + sample`."""

    def __init__(self, request: CompletionRequest) -> None:
        """Read a request of the right types."""
        self._request = request

    @property
    def _samples(self) -> int:
        """How many samples are drawn of each prompt; the best `choices` are shown."""
        return self._request.best_of or self._request.choices

    def ask(self) -> Ask:
        """Return one item per prompt and sample; each further sample has the next seed.

        Raises:
            InvalidRequest: Fields that contradict each other.
            UnsupportedParameter: Something the dialect knows and this version does not do.
        """
        request = self._request
        request.check_stream()
        request.refuse_unsupported({"suffix"}, {})
        check_prompt_logprobs(request)
        self._check_best_of()
        if request.max_tokens == 0 and not request.echo and request.prompt_logprobs is None:
            raise InvalidRequest(
                "0 tokens are only allowed with echo or prompt_logprobs", param="max_tokens"
            )
        count = len(request.prompt) * self._samples
        if count > MAX_ITEMS:
            raise InvalidRequest(
                f"{count} samples in all are more than {MAX_ITEMS}", param="prompt"
            )
        constraint = read_constraint(request, read_response_format(request.response_format))
        items = tuple(
            self._item(prompt, sample, constraint)
            for prompt in map(self._prompt, request.prompt)
            for sample in range(self._samples)
        )
        return Ask(model=request.model, items=items, stream=bool(request.stream))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Completion:
        """Fold every event of a finished call into one body.

        Raises:
            HeadpondError: A choice failed.
        """
        samples = self._samples
        items = len(self._request.prompt) * samples
        outcomes, usage = fold(events, items=items, samples=samples)
        shown: list[Outcome] = []
        for first in range(0, items, samples):
            shown += best(outcomes[first : first + samples], self._request.choices)
        return Completion(
            id=_id(heading),
            created=heading.created_s,
            model=heading.model,
            choices=[self._choice(index, outcome) for index, outcome in enumerate(shown)],
            usage=usage,
            system_fingerprint=heading.fingerprint,
        )

    def stream(self, heading: Heading) -> StreamWriter:
        """Return the writer of a stream."""
        request = self._request
        blank = Completion(
            id=_id(heading),
            object="text_completion",
            created=heading.created_s,
            model=heading.model,
            system_fingerprint=heading.fingerprint,
            choices=[],
        )
        frame = ChunkFrame(blank, include_usage=request.include_usage)
        form = CompletionChunks(frame, self._columns)
        return ChunkWriter(frame, form, samples=self._samples, include_usage=request.include_usage)

    def _check_best_of(self) -> None:
        request = self._request
        if request.best_of is None:
            return
        if request.best_of < request.choices:
            raise InvalidRequest("best_of must not be below n", param="best_of")
        if request.stream and request.best_of > request.choices:
            raise InvalidRequest("best_of above n cannot be streamed", param="best_of")

    def _item(self, prompt: Prompt, sample: int, constraint: Constraint | None) -> GenerationItem:
        request = self._request
        logprobs = request.logprobs
        if logprobs is None and self._samples > request.choices:
            logprobs = 0  # what the samples are ranked by
        of_prompt = [request.prompt_logprobs, request.logprobs if request.echo else None]
        return replace(
            request.item(prompt, sample),
            max_output_tokens=(
                DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
            ),
            logprobs=logprobs,
            prompt_logprobs=max((each for each in of_prompt if each is not None), default=None),
            echo=bool(request.echo),
            constraint=constraint,
        )

    def _prompt(self, source: PromptSource) -> Prompt:
        request = self._request
        if not isinstance(source, str):
            return Prompt(token_ids=source, most_tokens=request.most_tokens)
        special = request.add_special_tokens is not False
        return Prompt(text=source, add_special_tokens=special, most_tokens=request.most_tokens)

    def _choice(self, index: int, outcome: Outcome) -> CompletionChoice:
        request = self._request
        of_prompt = outcome.logprobs[: outcome.prompt_logprobs]
        logprobs = None
        if request.logprobs is not None:
            said = outcome.logprobs[outcome.prompt_logprobs :]
            shown = _at_most(of_prompt, request.logprobs) if request.echo else []
            logprobs = self._columns().render([*shown, *said])
        choice = CompletionChoice(
            index=index,
            text=outcome.text,
            logprobs=logprobs,
            finish_reason=_reason(outcome.finish_reason),
        )
        if request.prompt_logprobs is not None:
            choice.prompt_logprobs = prompt_entries(_at_most(of_prompt, request.prompt_logprobs))
        return choice

    def _columns(self) -> LogprobColumns:
        request = self._request
        return LogprobColumns(
            with_top=bool(request.logprobs), by_id=bool(request.return_tokens_as_token_ids)
        )


def best(samples: Sequence[Outcome], count: int) -> list[Outcome]:
    """Return the likeliest `count` samples per token, or all in their order when all stay."""
    if count == len(samples):
        return list(samples)
    return sorted(samples, key=_mean_logprob, reverse=True)[:count]


def _mean_logprob(sample: Outcome) -> float:
    said = sample.logprobs[sample.prompt_logprobs :]
    logprobs = [each.chosen.logprob for each in said if each.chosen.logprob is not None]
    return sum(logprobs) / len(logprobs) if logprobs else -inf


def _id(heading: Heading) -> str:
    return f"cmpl-{heading.request_id}"


def _at_most(tokens: Sequence[ChosenToken], count: int) -> list[ChosenToken]:
    """Return tokens with at most so many alternatives."""
    return [replace(token, top=token.top[:count]) for token in tokens]


def _reason(reason: str | None) -> CompletionFinishReason:
    """Return why a choice ended; texts call no tools."""
    return "length" if reason == "length" else "stop"


class CompletionChunks:
    """The chunks of one streamed call: text, then for each choice once its end."""

    def __init__(self, frame: ChunkFrame, new_columns: Callable[[], LogprobColumns]) -> None:
        """Write chunks in a frame; each choice has log-probabilities of its own."""
        self._frame = frame
        self._new_columns = new_columns
        self._templates: dict[int, ChunkTemplate] = {}
        self._columns: dict[int, LogprobColumns] = {}

    def chunks(self, index: int, delta: TextDelta) -> list[str]:
        """Render what a step added to a choice, and after that its end."""
        rendered = []
        if delta.logprobs:
            rendered.append(self._with_logprobs(index, delta))
        elif delta.text:
            rendered.append(self._template(index).render(delta.text))
        if delta.finish_reason is not None:
            reason = _reason(delta.finish_reason)
            end = CompletionChoice(index=index, text="", logprobs=None, finish_reason=reason)
            rendered.append(self._frame.choice(end))
        return rendered

    def _template(self, index: int) -> ChunkTemplate:
        template = self._templates.get(index)
        if template is None:
            plain = CompletionChoice(index=index, text=SLOT, logprobs=None, finish_reason=None)
            template = self._templates[index] = self._frame.template(plain)
        return template

    def _with_logprobs(self, index: int, delta: TextDelta) -> str:
        columns = self._columns.setdefault(index, self._new_columns())
        return self._frame.choice(
            CompletionChoice(
                index=index,
                text=delta.text,
                logprobs=columns.render(delta.logprobs),
                finish_reason=None,
            )
        )
