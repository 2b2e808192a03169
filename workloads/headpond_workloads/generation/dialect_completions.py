"""The legacy completions dialect: `POST /v1/completions` in and out of generation's terms."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence

from headpond.dialect import Ask, Heading, ItemEvent, StreamWriter
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.generation.chunks import SLOT, ChunkTemplate, ChunkWriter
from headpond_workloads.generation.items import (
    ChosenToken,
    GenerationItem,
    Prompt,
    TextDelta,
    TokenLogprob,
)
from headpond_workloads.generation.outcome import Outcome, fold
from headpond_workloads.generation.schema import LEAST_LOGPROB, Usage, refuse_unsupported
from headpond_workloads.generation.schema_completions import (
    DEFAULT_MAX_TOKENS,
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    PromptSource,
)


class CompletionExchange:
    """Some prompts, and the choices of each: choice `prompt * n + sample`."""

    def __init__(self, request: CompletionRequest) -> None:
        """Read a request of the right types."""
        self._request = request

    def ask(self) -> Ask:
        """Return one item per prompt and sample; each further sample has the next seed.

        Raises:
            InvalidRequest: Fields that contradict each other.
            UnsupportedParameter: Something the dialect knows and this version does not do.
        """
        request = self._request
        request.check_stream()
        refuse_unsupported({"echo": request.echo, "suffix": request.suffix}, {})
        self._check_best_of()
        items = tuple(
            self._item(prompt, sample)
            for prompt in map(_prompt, request.prompt)
            for sample in range(request.choices)
        )
        return Ask(model=request.model, items=items, stream=bool(request.stream))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Completion:
        """Fold every event of a finished call into one body.

        Raises:
            HeadpondError: A choice failed.
        """
        request = self._request
        items = len(request.prompt) * request.choices
        outcomes, usage = fold(events, items=items, samples=request.choices)
        return Completion(
            id=_id(heading),
            created=heading.created_s,
            model=heading.model,
            choices=[self._choice(index, outcome) for index, outcome in enumerate(outcomes)],
            usage=usage,
            system_fingerprint=heading.fingerprint,
        )

    def stream(self, heading: Heading) -> StreamWriter:
        """Return the writer of a stream."""
        request = self._request
        form = CompletionChunks(
            heading, include_usage=request.include_usage, with_top=bool(request.logprobs)
        )
        return ChunkWriter(form, samples=request.choices, include_usage=request.include_usage)

    def _check_best_of(self) -> None:
        request = self._request
        if request.best_of is None or request.best_of == request.choices:
            return
        if request.best_of < request.choices:
            raise InvalidRequest("best_of must not be below n", param="best_of")
        raise UnsupportedParameter("best_of above n is not supported", param="best_of")

    def _item(self, prompt: Prompt, sample: int) -> GenerationItem:
        request = self._request
        return GenerationItem(
            prompt=prompt,
            max_output_tokens=request.max_tokens or DEFAULT_MAX_TOKENS,
            sampling=request.sampling(sample),
            stop=request.stop or (),
            ignore_eos=bool(request.ignore_eos),
            logprobs=request.logprobs,
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
            finish_reason=outcome.finish_reason,
        )


def _id(heading: Heading) -> str:
    return f"cmpl-{heading.request_id}"


def _prompt(source: PromptSource) -> Prompt:
    return Prompt(text=source) if isinstance(source, str) else Prompt(token_ids=source)


class LogprobColumns:
    """Legacy log-probabilities of one choice; offsets go on from chunk to chunk."""

    def __init__(self, *, with_top: bool) -> None:
        """Start at the choice's first character, with or without alternatives."""
        self._with_top = with_top
        self._offset = 0
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def render(self, tokens: Sequence[ChosenToken]) -> CompletionLogprobs:
        """Return the columns of the next tokens."""
        return CompletionLogprobs(
            tokens=[_name(token.chosen) for token in tokens],
            token_logprobs=[max(token.chosen.logprob, LEAST_LOGPROB) for token in tokens],
            top_logprobs=[_top(token) for token in tokens] if self._with_top else None,
            text_offset=[self._advance(token.chosen.raw) for token in tokens],
        )

    def _advance(self, raw: bytes) -> int:
        """Return where a token starts; bytes amid a character start where it does."""
        start = self._offset
        self._offset += len(self._decoder.decode(raw))
        return start


def _name(token: TokenLogprob) -> str:
    try:
        return token.raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.raw)


def _top(token: ChosenToken) -> dict[str, float]:
    """Return the alternatives and, where it is none of them, the chosen token."""
    return {_name(t): max(t.logprob, LEAST_LOGPROB) for t in (*token.top, token.chosen)}


class CompletionChunks:
    """The chunks of one streamed call: text, then for each choice once its end."""

    def __init__(self, heading: Heading, *, include_usage: bool, with_top: bool) -> None:
        """Repeat `heading` in each chunk, with usage null when it comes in the end."""
        self._heading = heading
        self._include_usage = include_usage
        self._with_top = with_top
        self._templates: dict[int, ChunkTemplate] = {}
        self._columns: dict[int, LogprobColumns] = {}

    def chunks(self, index: int, delta: TextDelta) -> list[str]:
        """Render what a step added to a choice: its text, and after that its end."""
        rendered = []
        if delta.logprobs:
            rendered.append(self._with_logprobs(index, delta))
        elif delta.text:
            rendered.append(self._template(index).render(delta.text))
        if delta.finish_reason is not None:
            end = CompletionChoice(
                index=index, text="", logprobs=None, finish_reason=delta.finish_reason
            )
            rendered.append(_dump(self._chunk([end])))
        return rendered

    def usage(self, usage: Usage) -> str:
        """Render the chunk without choices that tells the usage."""
        return _dump(self._chunk([], usage))

    def _template(self, index: int) -> ChunkTemplate:
        template = self._templates.get(index)
        if template is None:
            plain = CompletionChoice(index=index, text=SLOT, logprobs=None, finish_reason=None)
            template = self._templates[index] = ChunkTemplate(self._chunk([plain]))
        return template

    def _with_logprobs(self, index: int, delta: TextDelta) -> str:
        columns = self._columns.setdefault(index, LogprobColumns(with_top=self._with_top))
        choice = CompletionChoice(
            index=index,
            text=delta.text,
            logprobs=columns.render(delta.logprobs),
            finish_reason=None,
        )
        return _dump(self._chunk([choice]))

    def _chunk(self, choices: list[CompletionChoice], usage: Usage | None = None) -> Completion:
        chunk = Completion(
            id=_id(self._heading),
            object="text_completion",
            created=self._heading.created_s,
            model=self._heading.model,
            system_fingerprint=self._heading.fingerprint,
            choices=choices,
        )
        if self._include_usage:
            chunk.usage = usage
        return chunk


def _dump(chunk: Completion) -> str:
    return chunk.model_dump_json(exclude_unset=True)
