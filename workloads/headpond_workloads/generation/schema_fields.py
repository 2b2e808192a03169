"""Field types that the dialects of generation share.

Explicit null is the same as absent, unknown fields are ignored, and numbers and booleans
are never read from strings or from one another. Lists fail at their first bad entry: a
body of a million bad ones would otherwise cost a second of the event loop and half a
gigabyte of errors.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue
from pydantic_core import PydanticCustomError

MAX_STOPS = 4
MAX_BIASES = 1024
MAX_BIAS = 100.0
MAX_ID = 2**31
"""Token IDs are below this, whatever the model."""

TRUNCATE_TO_FIT = -1
"""What vLLM's clients send for "keep as many tokens of the prompt as fit"."""

MAX_METADATA = 16
MAX_ITEMS = 128
"""The most sequences of one call: prompts times samples."""

MAX_TURNS = 8192
MAX_PARTS = 1024
MAX_DOCUMENTS = 256
NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"
"""What OpenAI allows for the names of tools and of schemas."""


def at_most(count: int) -> BeforeValidator:
    """Return what refuses a longer list before any of its entries is read."""

    def check(value: object) -> object:
        if isinstance(value, list) and len(value) > count:
            raise PydanticCustomError("too_many", f"must hold at most {count} entries")
        return value

    return BeforeValidator(check)


Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonEmpty = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
JsonObject = dict[str, JsonValue]
TokenId = Annotated[int, Field(strict=True, ge=0, lt=MAX_ID)]


def _read_stops(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    if value is not None and not isinstance(value, list):
        raise PydanticCustomError("stop", "must be a string, or an array of strings")
    if isinstance(value, list) and len(value) > MAX_STOPS:
        raise PydanticCustomError("stop", f"must hold at most {MAX_STOPS} strings")
    return value


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


def _read_truncation(count: int) -> int:
    if count < 1 and count != TRUNCATE_TO_FIT:
        raise PydanticCustomError("truncation", f"must be at least 1, or {TRUNCATE_TO_FIT}")
    return count


Truncation = Annotated[Count, AfterValidator(_read_truncation)]
Stop = Annotated[
    tuple[NonEmpty, ...],
    Field(fail_fast=True),
    BeforeValidator(_read_stops, json_schema_input_type=str | list[str]),
]
LogitBias = Annotated[
    dict[int, float] | None,
    BeforeValidator(_read_biases, json_schema_input_type=dict[str, float] | None),
]
Metadata = Annotated[dict[str, str], Field(fail_fast=True, max_length=MAX_METADATA)]
TokenIds = Annotated[tuple[TokenId, ...], Field(fail_fast=True)]
