"""Wire types that the OpenAI dialects of generation share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling, TokenRules
from headpond_workloads.generation.schema_constraint import (
    Choices,
    ExpressionText,
    GrammarText,
    ResponseFormat,
    StructuredOutputs,
)
from headpond_workloads.generation.schema_fields import (
    TRUNCATE_TO_FIT,
    Count,
    Flag,
    JsonObject,
    LogitBias,
    NonEmpty,
    Number,
    Stop,
    TokenIds,
    Truncation,
    at_most,
)
from headpond_workloads.generation.schema_foreign import asks, check_foreign
from headpond_workloads.generation.schema_labels import LabelledRequest

MAX_CHOICES = 16
SEED_BOUND = 2**63
TOP_K_OFF = -1
"""What some clients send for "keep every token"; 0 means the same."""

MAX_WORDS = 256
MAX_WORD_CHARS = 1024
MAX_PROMPT_LOGPROBS = 20


BadWords = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=MAX_WORD_CHARS)], ...],
    Field(fail_fast=True),
    at_most(MAX_WORDS),
]


class StreamOptions(BaseModel):
    """What a stream carries beside the text."""

    model_config = ConfigDict(frozen=True)

    include_usage: Flag | None = None
    include_obfuscation: Flag | None = None


class SamplingRequest(LabelledRequest):
    """The fields that mean the same in every dialect of generation."""

    model: NonEmpty
    stream: Flag | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    logit_bias: LogitBias = None
    seed: Annotated[Count, Field(ge=-SEED_BOUND, lt=SEED_BOUND)] | None = None
    stop: Stop | None = None

    adapter: NonEmpty | None = Field(
        default=None, description="Extension: the LoRA adapter to use, by name."
    )
    guided_choice: Choices | None = Field(
        default=None, description="Extension: the output is one of these texts."
    )
    guided_grammar: GrammarText | None = Field(
        default=None, description="Extension: the output is what this Lark grammar matches."
    )
    guided_json: str | JsonObject | None = Field(
        default=None, description="Extension: the output is JSON that this schema allows."
    )
    guided_regex: ExpressionText | None = Field(
        default=None, description="Extension: the output is what this expression matches."
    )
    ignore_eos: Flag | None = Field(
        default=None, description="Extension: go on past the end-of-sequence token."
    )
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = Field(
        default=None, description="Extension: least probability relative to the likeliest token."
    )
    repetition_penalty: Annotated[Number, Field(ge=0.1, le=10)] | None = Field(
        default=None, description="Extension: divides the logits of tokens seen before."
    )
    structured_outputs: StructuredOutputs | None = Field(
        default=None, description="Extension: the guided_* fields by their newer names."
    )
    top_k: Annotated[Count, Field(ge=TOP_K_OFF)] | None = Field(
        default=None, description="Extension: keep this many tokens; 0 or -1 keeps all."
    )

    allowed_token_ids: TokenIds | None = Field(
        default=None, description="Extension: no other token is generated."
    )
    bad_words: BadWords | None = Field(
        default=None, description="Extension: the tokens of these texts are not generated."
    )
    cache_salt: str | None = Field(
        default=None, description="Extension: cached prefixes are shared under one salt only."
    )
    include_stop_str_in_output: Flag | None = Field(
        default=None, description="Extension: the text goes up to the end of what stopped it."
    )
    min_tokens: Annotated[Count, Field(ge=0)] | None = Field(
        default=None, description="Extension: nothing ends the text before so many tokens."
    )
    prompt_logprobs: Annotated[Count, Field(ge=0, le=MAX_PROMPT_LOGPROBS)] | None = Field(
        default=None, description="Extension: how likely the tokens of the prompt were."
    )
    return_tokens_as_token_ids: Flag | None = Field(
        default=None, description="Extension: tokens in log-probabilities read token_id:1."
    )
    skip_special_tokens: Flag | None = Field(
        default=None, description="Extension: whether the text is without control tokens (true)."
    )
    stop_token_ids: TokenIds | None = Field(
        default=None, description="Extension: the text ends before one of these tokens."
    )
    truncate_prompt_tokens: Truncation | None = Field(
        default=None,
        description="Extension: keep so many of the prompt's last tokens; -1 as many as fit.",
    )

    def refuse_unsupported(
        self, names: Set[str], harmless: Mapping[str, Iterable[JsonValue]]
    ) -> None:
        """Refuse fields that ask for what is not done: those of `names`, and foreign ones.

        Null, and the empty values with which client libraries fill up, ask for nothing. An
        empty object asks for something: its defaults.

        Args:
            names: Fields of the dialect that are not done.
            harmless: Further values, by field name, that ask for nothing.

        Raises:
            UnsupportedParameter: Names the first such field.
        """
        check_foreign(self.model_extra or {}, type(self).model_fields)
        fields = self.model_dump(include=set(names), mode="json")
        for name, value in fields.items():
            if value is not False and asks(value, tuple(harmless.get(name, ()))):
                raise UnsupportedParameter(f"this value of {name} is not supported", param=name)

    def check_stream(self) -> None:
        """Refuse stream options of a call that does not stream.

        Raises:
            InvalidRequest: Names `stream_options`.
        """
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest(
                "stream_options is only allowed when stream is true", param="stream_options"
            )

    def item(self, prompt: Prompt, sample: int = 0) -> GenerationItem:
        """Return the prompt's sample number `sample`, as far as all dialects say it alike."""
        return GenerationItem(
            prompt=prompt,
            sampling=self.sampling(sample),
            rules=TokenRules(
                min_tokens=self.min_tokens or 0,
                allowed_ids=self.allowed_token_ids or (),
                bad_words=self.bad_words or (),
            ),
            stop=self.stop or (),
            stop_ids=self.stop_token_ids or (),
            include_stop=bool(self.include_stop_str_in_output),
            ignore_eos=bool(self.ignore_eos),
            show_control=self.skip_special_tokens is False,
            adapter=self.adapter,
            cache_salt=self.cache_salt or "",
        )

    @property
    def most_tokens(self) -> int | Literal["what fits"] | None:
        """How many tokens of a prompt are kept; None keeps all."""
        most = self.truncate_prompt_tokens
        return "what fits" if most == TRUNCATE_TO_FIT else most

    def sampling(self, sample: int = 0) -> Sampling:
        """Return how the prompt's sample number `sample` is drawn: each has its own seed."""
        top_k = self.top_k if self.top_k and self.top_k > 0 else 0
        return Sampling(
            temperature=_or(self.temperature, 1.0),
            top_p=_or(self.top_p, 1.0),
            top_k=top_k,
            min_p=_or(self.min_p, 0.0),
            presence_penalty=_or(self.presence_penalty, 0.0),
            frequency_penalty=_or(self.frequency_penalty, 0.0),
            repetition_penalty=_or(self.repetition_penalty, 1.0),
            logit_bias=self.logit_bias or {},
            seed=None if self.seed is None else self.seed + sample,
        )


class GenerationRequest(SamplingRequest):
    """What chat and completions share: choices, and streams of chunks."""

    n: Annotated[Count, Field(ge=1, le=MAX_CHOICES)] | None = None
    response_format: ResponseFormat | None = None

    @property
    def choices(self) -> int:
        """How many choices each prompt gets."""
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


class PromptTokensDetails(BaseModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int = 0


class CompletionTokensDetails(BaseModel):
    """What the generated tokens were for."""

    reasoning_tokens: int = 0


class Usage(BaseModel):
    """What a call came to in tokens; a prompt counts once, however many samples it had."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None
