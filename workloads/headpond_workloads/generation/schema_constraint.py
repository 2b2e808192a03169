"""Wire types that say what an output must be."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from headpond_workloads.generation.schema_fields import Flag, JsonObject, Name, NonEmpty

MAX_SOURCE_BYTES = 64 * 2**10
"""The longest schema or grammar; it is compiled before the first token."""

MAX_DEPTH = 64
"""The deepest nesting of a schema."""

MAX_EXPRESSION_CHARS = 8 * 2**10
MAX_TEXTS = 1024


def _read_texts(value: object) -> object:
    if value is not None and not (isinstance(value, list) and 1 <= len(value) <= MAX_TEXTS):
        raise PydanticCustomError("choice", f"must be an array of 1 to {MAX_TEXTS} texts")
    return value


Choices = Annotated[
    tuple[NonEmpty, ...],
    Field(fail_fast=True),
    BeforeValidator(_read_texts, json_schema_input_type=list[str]),
]
ExpressionText = Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION_CHARS)]
GrammarText = Annotated[str, Field(min_length=1, max_length=MAX_SOURCE_BYTES)]


class JsonSchemaFormat(BaseModel):
    """A schema with its name, which models may be shown."""

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    name: Name
    description: str | None = None
    schema_: JsonObject = Field(alias="schema")
    strict: Flag | None = None


class ResponseFormat(BaseModel):
    """`text`, `json_object`, or `json_schema` with its schema."""

    model_config = ConfigDict(frozen=True)

    type: str
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(BaseModel):
    """One of the ways to say what an output must be, in vLLM's words.

    Unknown fields are kept, to be refused: a misspelled way would leave the output free.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    choice: Choices | None = None
    disable_any_whitespace: Flag | None = None
    grammar: GrammarText | None = None
    json_: str | JsonObject | None = Field(default=None, alias="json")
    json_object: Flag | None = None
    regex: ExpressionText | None = None
    structural_tag: str | JsonObject | None = None
