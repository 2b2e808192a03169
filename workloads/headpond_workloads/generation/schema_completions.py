"""Wire types of `POST /v1/completions`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from headpond_workloads.generation.schema import MAX_CHOICES, GenerationRequest, Usage
from headpond_workloads.generation.schema_fields import MAX_ID, MAX_ITEMS, Count, Flag
from headpond_workloads.generation.schema_logprobs import PromptLogprobs

COMPLETIONS_PATH = "/v1/completions"

DEFAULT_MAX_TOKENS = 16

CompletionFinishReason = Literal["stop", "length"]

PromptSource = str | tuple[int, ...]
"""One prompt: its text, or its token IDs."""


def _read_prompts(value: object) -> object:
    """Turn the four forms of `prompt` into a tuple of prompts."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("prompt", "must be a string, or a non-empty array")
    if isinstance(value[0], int):
        return (_token_ids(value),)
    if len(value) > MAX_ITEMS:
        raise PydanticCustomError("prompt", f"must hold at most {MAX_ITEMS} prompts")
    return tuple(_prompt(entry) for entry in value)


def _prompt(entry: object) -> PromptSource:
    if isinstance(entry, str):
        return entry
    if isinstance(entry, list) and entry:
        return _token_ids(entry)
    raise PydanticCustomError(
        "prompt", "an array holds strings, token IDs, or non-empty arrays of token IDs"
    )


def _token_ids(entries: list[object]) -> tuple[int, ...]:
    ids = tuple(entry for entry in entries if type(entry) is int and 0 <= entry < MAX_ID)
    if len(ids) != len(entries):
        raise PydanticCustomError("prompt", f"token IDs are integers from 0 to below {MAX_ID}")
    return ids


Prompts = Annotated[
    tuple[PromptSource, ...],
    BeforeValidator(
        _read_prompts, json_schema_input_type=str | list[str] | list[int] | list[list[int]]
    ),
]


class CompletionRequest(GenerationRequest):
    """Texts to go on with."""

    prompt: Prompts
    max_tokens: Annotated[Count, Field(ge=0)] | None = Field(
        default=None,
        description="With echo or prompt_logprobs it may be 0: only the prompt is scored.",
    )
    logprobs: Annotated[Count, Field(ge=0, le=5)] | None = None
    best_of: Annotated[Count, Field(ge=1, le=MAX_CHOICES)] | None = None
    add_special_tokens: Flag | None = Field(
        default=None, description="Extension: whether the tokenizer adds its own (true)."
    )

    echo: Flag | None = None
    suffix: str | None = None


class CompletionLogprobs(BaseModel):
    r"""Log-probabilities of the tokens of one choice or chunk, column by column.

    A token that is not whole characters reads `bytes:\xe2\x82`. Offsets count characters
    from the start of the choice's text. The first token of an echoed prompt has null.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None
    text_offset: list[int]


def _absent(value: object) -> bool:
    return value is None


class CompletionChoice(BaseModel):
    """One sample of one prompt, or its part of a chunk."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: CompletionFinishReason | None = None
    prompt_logprobs: PromptLogprobs | None = Field(default=None, exclude_if=_absent)


class Completion(BaseModel):
    """The answer, or one event of a streamed answer; unset fields are left out of events."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: list[CompletionChoice]
    usage: Usage | None = None
