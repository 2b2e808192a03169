"""Wire types that both OpenAI dialects of generation share.

Explicit null is the same as absent, unknown fields are ignored, and numbers and booleans
are never read from strings or from one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from pydantic_core import PydanticCustomError

from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond_workloads.generation.items import Sampling

MAX_STOPS = 4
MAX_CHOICES = 16
MAX_BIASES = 1024
MAX_BIAS = 100.0
SEED_BOUND = 2**63
LEAST_LOGPROB = -9999.0
"""What the dialects say of tokens too unlikely for a number; JSON has no infinity."""

TOP_K_OFF = -1
"""What some clients send for "keep every token"; 0 means the same."""

Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonEmpty = Annotated[str, Field(min_length=1)]


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _read_biases(value: object) -> object:
    """Turn the wire's string keys into token IDs, with one error for the whole field."""
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) > MAX_BIASES:
        raise PydanticCustomError(
            "logit_bias", f"must be an object of at most {MAX_BIASES} token IDs to biases"
        )
    return {_token_id(key): _bias(bias) for key, bias in value.items()}


def _token_id(key: object) -> int:
    text = str(key)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise PydanticCustomError("logit_bias", "keys must be token IDs, written as integers")
    return int(text)


def _bias(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("logit_bias", "biases must be numbers")
    if not -MAX_BIAS <= value <= MAX_BIAS:
        raise PydanticCustomError("logit_bias", f"biases must lie in {-MAX_BIAS} to {MAX_BIAS}")
    return float(value)


Stop = Annotated[
    tuple[NonEmpty, ...],
    Field(fail_fast=True, max_length=MAX_STOPS),
    BeforeValidator(_as_tuple, json_schema_input_type=str | list[str]),
]
LogitBias = Annotated[
    dict[int, float] | None,
    BeforeValidator(_read_biases, json_schema_input_type=dict[str, float] | None),
]


class StreamOptions(BaseModel):
    """What a stream carries beside the text."""

    model_config = ConfigDict(frozen=True)

    include_usage: Flag | None = None
    include_obfuscation: Flag | None = None


class GenerationRequest(BaseModel):
    """The fields that mean the same in every dialect of generation."""

    model_config = ConfigDict(frozen=True)

    model: NonEmpty
    stream: Flag | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[Count, Field(ge=1, le=MAX_CHOICES)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    logit_bias: LogitBias = None
    seed: Annotated[Count, Field(ge=-SEED_BOUND, lt=SEED_BOUND)] | None = None
    stop: Stop | None = None
    user: str | None = None

    top_k: Annotated[Count, Field(ge=TOP_K_OFF)] | None = Field(
        default=None, description="Extension: keep this many tokens; 0 or -1 keeps all."
    )
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = Field(
        default=None, description="Extension: least probability relative to the likeliest token."
    )
    repetition_penalty: Annotated[Number, Field(ge=0.1, le=10)] | None = Field(
        default=None, description="Extension: divides the logits of tokens seen before."
    )
    ignore_eos: Flag | None = Field(
        default=None, description="Extension: go on past the end-of-sequence token."
    )

    @property
    def choices(self) -> int:
        """How many samples each prompt gets."""
        return self.n or 1

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def check_stream(self) -> None:
        """Refuse stream options of a call that does not stream.

        Raises:
            InvalidRequest: Names `stream_options`.
        """
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest(
                "stream_options is only allowed when stream is true", param="stream_options"
            )

    def sampling(self, sample: int) -> Sampling:
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


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def refuse_unsupported(
    fields: Mapping[str, JsonValue], harmless: Mapping[str, Iterable[JsonValue]]
) -> None:
    """Refuse fields that ask for what is not done yet.

    Null, and the empty values with which client libraries fill up, ask for nothing.

    Args:
        fields: Values by field name.
        harmless: Further values, by field name, that ask for nothing.

    Raises:
        UnsupportedParameter: Names the first such field.
    """
    for name, value in fields.items():
        if value in (None, False, "", [], {}) or value in harmless.get(name, ()):
            continue
        raise UnsupportedParameter(f"this value of {name} is not supported", param=name)


class PromptTokensDetails(BaseModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int = 0


class Usage(BaseModel):
    """What a call came to in tokens; a prompt counts once, however many samples it had."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
