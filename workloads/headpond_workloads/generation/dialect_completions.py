"""The legacy completions dialect: `POST /v1/completions` in and out of generation's terms."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from headpond.dialect import Ask, Heading, ItemEvent, StreamWriter
from headpond.errors import InvalidRequest
from headpond.units import Work
from headpond_workloads.generation.chunks import SLOT, ChunkFrame, ChunkTemplate, ChunkWriter
from headpond_workloads.generation.dialect_constraint import (
    read_constraint,
    read_response_format,
)
from headpond_workloads.generation.dialect_logprobs import LogprobColumns
from headpond_workloads.generation.items import Constraint, GenerationItem, Prompt, TextDelta
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
        self._check_best_of()
        if request.max_tokens == 0 and not request.echo:
            raise InvalidRequest("0 tokens are only allowed with echo", param="max_tokens")
        count = len(request.prompt) * self._samples
        if count > MAX_ITEMS:
            raise InvalidRequest(
                f"{count} samples in all are more than {MAX_ITEMS}", param="prompt"
            )
        constraint = read_constraint(request, read_response_format(request.response_format))
        items = tuple(
            self._item(prompt, sample, constraint)
            for prompt in map(_prompt, request.prompt)
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
        form = CompletionChunks(frame, with_top=bool(request.logprobs))
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
        return GenerationItem(
            prompt=prompt,
            max_output_tokens=(
                DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
            ),
            sampling=request.sampling(sample),
            stop=request.stop or (),
            ignore_eos=bool(request.ignore_eos),
            logprobs=logprobs,
            prompt_logprobs=request.logprobs if request.echo else None,
            echo=bool(request.echo),
            constraint=constraint,
            adapter=request.adapter,
        )

    def _choice(self, index: int, outcome: Outcome) -> CompletionChoice:
        logprobs = None
        if self._request.logprobs is not None:
            columns = LogprobColumns(with_top=self._request.logprobs > 0)
            logprobs = columns.render(outcome.logprobs)
        return CompletionChoice(
            index=index,
            text=outcome.text,
            logprobs=logprobs,
            finish_reason=_reason(outcome.finish_reason),
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


def _prompt(source: PromptSource) -> Prompt:
    return Prompt(text=source) if isinstance(source, str) else Prompt(token_ids=source)


def _reason(reason: str | None) -> CompletionFinishReason:
    """Return why a choice ended; texts call no tools."""
    return "length" if reason == "length" else "stop"


class CompletionChunks:
    """The chunks of one streamed call: text, then for each choice once its end."""

    def __init__(self, frame: ChunkFrame, *, with_top: bool) -> None:
        """Write chunks in a frame, their logprobs with or without alternatives."""
        self._frame = frame
        self._with_top = with_top
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
        columns = self._columns.setdefault(index, LogprobColumns(with_top=self._with_top))
        return self._frame.choice(
            CompletionChoice(
                index=index,
                text=delta.text,
                logprobs=columns.render(delta.logprobs),
                finish_reason=None,
            )
        )
