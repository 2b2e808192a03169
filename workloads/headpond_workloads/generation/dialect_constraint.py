"""From the many ways to say what an output must be to one constraint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond_workloads.generation.items import Constraint
from headpond_workloads.generation.schema import SamplingRequest
from headpond_workloads.generation.schema_constraint import (
    MAX_DEPTH,
    MAX_SOURCE_BYTES,
    ResponseFormat,
    StructuredOutputs,
)


def read_constraint(
    request: SamplingRequest, formatted: Constraint | None = None
) -> Constraint | None:
    """Return what the output of a request must be, or None.

    Args:
        request: Its extension fields are read.
        formatted: What its dialect's own field says.

    Raises:
        InvalidRequest: There is more than one constraint, or it is none; names the field.
        UnsupportedParameter: A kind of constraint that is not done.
    """
    asked = [] if formatted is None else [formatted]
    asked += _guided(request)
    if request.structured_outputs is not None:
        structured = list(_structured(request.structured_outputs))
        if not structured:
            raise InvalidRequest("say what the output must be", param="structured_outputs")
        asked += structured
    if len(asked) > 1:
        first, second = asked[0].param, asked[1].param
        raise InvalidRequest(f"{first} and {second} cannot both be set", param=second)
    return asked[0] if asked else None


def read_format(
    kind: str, schema: Mapping[str, JsonValue] | None, *, path: str, schema_path: str
) -> Constraint | None:
    """Return what a format of this type allows, or None for any text.

    Args:
        kind: `text`, `json_object` or `json_schema`.
        schema: The schema of the latter.
        path: The format's field.
        schema_path: The field that the schema is in, or should be.

    Raises:
        InvalidRequest: The schema is missing, or too large.
        UnsupportedParameter: Another type.
    """
    if kind == "text":
        return None
    if kind == "json_object":
        return Constraint(kind="json_object", param=path)
    if kind != "json_schema":
        raise UnsupportedParameter(
            "the type must be text, json_object or json_schema", param=f"{path}.type"
        )
    if schema is None:
        raise InvalidRequest("the type json_schema needs it", param=schema_path)
    source = schema_text(schema, schema_path)
    return Constraint(kind="json_schema", source=source, param=schema_path)


def read_response_format(wanted: ResponseFormat | None) -> Constraint | None:
    """Return what the format of a chat or completion allows, or None for any text.

    Raises:
        InvalidRequest: The schema is missing, or too large.
        UnsupportedParameter: An unknown type.
    """
    if wanted is None:
        return None
    path = "response_format"
    if wanted.json_schema is None:
        schema_path = f"{path}.json_schema"
        return read_format(wanted.type, None, path=path, schema_path=schema_path)
    schema_path = f"{path}.json_schema.schema"
    schema = wanted.json_schema.schema_
    return read_format(wanted.type, schema, path=path, schema_path=schema_path)


def schema_text(schema: Mapping[str, JsonValue], param: str) -> str:
    """Return a schema as JSON text.

    Raises:
        InvalidRequest: It is too long, too deep, or holds numbers that JSON does not have.
    """
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise InvalidRequest("the schema holds a number that JSON lacks", param=param) from None
    if len(text.encode()) > MAX_SOURCE_BYTES:
        raise InvalidRequest(f"the schema is longer than {MAX_SOURCE_BYTES} bytes", param=param)
    if _is_deeper(schema, MAX_DEPTH):
        raise InvalidRequest(f"the schema is nested deeper than {MAX_DEPTH} levels", param=param)
    return text


def _is_deeper(value: JsonValue | Mapping[str, JsonValue], limit: int) -> bool:
    level: Sequence[JsonValue | Mapping[str, JsonValue]] = [value]
    for _ in range(limit):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


def _inside(value: JsonValue | Mapping[str, JsonValue]) -> Iterator[JsonValue]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _guided(request: SamplingRequest) -> Iterator[Constraint]:
    if request.guided_json is not None:
        yield _json(request.guided_json, "guided_json")
    if request.guided_regex is not None:
        yield Constraint(kind="regex", source=request.guided_regex, param="guided_regex")
    if request.guided_choice is not None:
        yield _choice(request.guided_choice, "guided_choice")
    if request.guided_grammar is not None:
        yield Constraint(kind="lark", source=request.guided_grammar, param="guided_grammar")


def _structured(wanted: StructuredOutputs) -> Iterator[Constraint]:
    if wanted.structural_tag is not None:
        raise UnsupportedParameter(
            "structural_tag is not supported", param="structured_outputs.structural_tag"
        )
    if wanted.disable_any_whitespace:
        raise UnsupportedParameter(
            "only false is supported", param="structured_outputs.disable_any_whitespace"
        )
    for name, value in (wanted.model_extra or {}).items():
        # Objects of vLLM come with all of their fields, most of them unset.
        if value is not None and value is not False:
            raise UnsupportedParameter("unknown field", param=f"structured_outputs.{name[:40]}")
    if wanted.json_ is not None:
        yield _json(wanted.json_, "structured_outputs.json")
    if wanted.json_object:
        yield Constraint(kind="json_object", param="structured_outputs.json_object")
    if wanted.regex is not None:
        yield Constraint(kind="regex", source=wanted.regex, param="structured_outputs.regex")
    if wanted.choice is not None:
        yield _choice(wanted.choice, "structured_outputs.choice")
    if wanted.grammar is not None:
        yield Constraint(kind="lark", source=wanted.grammar, param="structured_outputs.grammar")


def _json(schema: str | dict[str, JsonValue], param: str) -> Constraint:
    """Read a schema that may have been sent as text."""
    if isinstance(schema, str):
        schema = _parsed(schema, param)
    return Constraint(kind="json_schema", source=schema_text(schema, param), param=param)


def _parsed(text: str, param: str) -> dict[str, JsonValue]:
    if len(text.encode()) > MAX_SOURCE_BYTES:
        raise InvalidRequest(f"the schema is longer than {MAX_SOURCE_BYTES} bytes", param=param)
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        raise InvalidRequest("must be a JSON schema: an object, or its text", param=param)
    return schema


def _choice(texts: Sequence[str], param: str) -> Constraint:
    source = json.dumps(texts, ensure_ascii=False)
    if len(source.encode()) > MAX_SOURCE_BYTES:
        raise InvalidRequest(f"the texts are longer than {MAX_SOURCE_BYTES} bytes", param=param)
    return Constraint(kind="choice", source=source, param=param)
