"""Wire types that the OpenAI dialects of generation share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond_workloads.generation.items import Sampling
from headpond_workloads.generation.schema_constraint import (
    Choices,
    ExpressionText,
    GrammarText,
    ResponseFormat,
    StructuredOutputs,
)
from headpond_workloads.generation.schema_fields import (
    Count,
    Flag,
    JsonObject,
    LogitBias,
    NonEmpty,
    Number,
    Stop,
    Texts,
    TokenIds,
)

MAX_CHOICES = 16
SEED_BOUND = 2**63
TOP_K_OFF = -1
"""What some clients send for "keep every token"; 0 means the same."""

UNSUPPORTED = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "include_stop_str_in_output",
        "min_tokens",
        "prompt_logprobs",
        "stop_token_ids",
    }
)
"""Fields of vLLM that would change the answer of every dialect."""

HARMLESS: Mapping[str, tuple[JsonValue, ...]] = {"min_tokens": (0,)}


class StreamOptions(BaseModel):
    """What a stream carries beside the text."""

    model_config = ConfigDict(frozen=True)

    include_usage: Flag | None = None
    include_obfuscation: Flag | None = None


class SamplingRequest(BaseModel):
    """The fields that mean the same in every dialect of generation."""

    model_config = ConfigDict(frozen=True)

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
    user: str | None = None

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

    allowed_token_ids: TokenIds | None = None
    bad_words: Texts | None = None
    include_stop_str_in_output: Flag | None = None
    min_tokens: Annotated[Count, Field(ge=0)] | None = None
    prompt_logprobs: Count | None = None
    stop_token_ids: TokenIds | None = None

    def refuse_unsupported(
        self, names: Set[str], harmless: Mapping[str, Iterable[JsonValue]]
    ) -> None:
        """Refuse fields that ask for what is not done: those of `names`, and every dialect's.

        Null, and the empty values with which client libraries fill up, ask for nothing. An
        empty object asks for something: its defaults.

        Args:
            names: Fields of the dialect that are not done.
            harmless: Further values, by field name, that ask for nothing.

        Raises:
            UnsupportedParameter: Names the first such field.
        """
        harmless = {**HARMLESS, **harmless}
        fields = self.model_dump(include={*UNSUPPORTED, *names}, mode="json")
        for name, value in fields.items():
            # Zero equals false, and is no empty value.
            if value is None or value is False or value in ("", []):
                continue
            if value not in harmless.get(name, ()):
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
