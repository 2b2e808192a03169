"""What an output must be, in all the ways to say it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from headpond.dialect import Exchange, Incoming
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.http.errors import invalid_request
from headpond_workloads.generation.dialects import routes
from headpond_workloads.generation.items import Constraint, GenerationItem

CHAT, COMPLETIONS, RESPONSES, *_ = routes
SCHEMA = {"type": "object", "properties": {"é": {"type": "string"}}}
SOURCE = '{"type":"object","properties":{"é":{"type":"string"}}}'


def body_of(fields: dict[str, object], **own: object) -> Incoming:
    return Incoming(body=json.dumps({"model": "m", **own, **fields}).encode())


def chat(fields: dict[str, object]) -> Exchange:
    return CHAT.read(body_of(fields, messages=[{"role": "user", "content": "hi"}]))


def completion(fields: dict[str, object]) -> Exchange:
    return COMPLETIONS.read(body_of(fields, prompt="x"))


def response(fields: dict[str, object]) -> Exchange:
    return RESPONSES.read(body_of(fields, input="x"))


def constraint(exchange: Exchange) -> Constraint | None:
    (item,) = exchange.ask().items
    assert isinstance(item, GenerationItem)
    return item.constraint


def json_format(schema: object, **fields: object) -> dict[str, object]:
    return {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": schema, **fields},
        }
    }


def nested(levels: int) -> dict[str, object]:
    schema: dict[str, object] = {}
    for _ in range(levels - 1):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize("read", [chat, completion, response])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"guided_json": None, "structured_outputs": None}, None),
        (
            {"guided_json": SCHEMA},
            Constraint(kind="json_schema", source=SOURCE, param="guided_json"),
        ),
        (
            {"guided_json": json.dumps(SCHEMA)},
            Constraint(kind="json_schema", source=SOURCE, param="guided_json"),
        ),
        ({"guided_regex": "a+"}, Constraint(kind="regex", source="a+", param="guided_regex")),
        (
            {"guided_choice": ["a", "é"]},
            Constraint(kind="choice", source='["a", "é"]', param="guided_choice"),
        ),
        (
            {"guided_grammar": 'start: "a"'},
            Constraint(kind="lark", source='start: "a"', param="guided_grammar"),
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "regex": None}},
            Constraint(kind="json_schema", source=SOURCE, param="structured_outputs.json"),
        ),
        (
            {
                "structured_outputs": {
                    "json": SCHEMA,
                    "disable_any_whitespace": False,
                    "disable_fallback": False,
                    "_backend": None,
                }
            },
            Constraint(kind="json_schema", source=SOURCE, param="structured_outputs.json"),
        ),
        (
            {"structured_outputs": {"json_object": True}},
            Constraint(kind="json_object", param="structured_outputs.json_object"),
        ),
        (
            {"structured_outputs": {"regex": "a"}},
            Constraint(kind="regex", source="a", param="structured_outputs.regex"),
        ),
        (
            {"structured_outputs": {"choice": ["a"]}},
            Constraint(kind="choice", source='["a"]', param="structured_outputs.choice"),
        ),
        (
            {"structured_outputs": {"grammar": "g"}},
            Constraint(kind="lark", source="g", param="structured_outputs.grammar"),
        ),
    ],
)
def test_extensions_of_every_dialect(
    read: Callable[[dict[str, object]], Exchange],
    fields: dict[str, object],
    expected: Constraint | None,
) -> None:
    assert constraint(read(fields)) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Constraint(kind="json_object")),
        (
            json_format(SCHEMA, strict=True, description="d"),
            Constraint(
                kind="json_schema", source=SOURCE, param="response_format.json_schema.schema"
            ),
        ),
    ],
)
@pytest.mark.parametrize("read", [chat, completion])
def test_the_format_of_chats_and_completions(
    read: Callable[[dict[str, object]], Exchange],
    fields: dict[str, object],
    expected: Constraint | None,
) -> None:
    assert constraint(read(fields)) == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, Constraint(kind="json_object", param="text.format")),
        (
            {"type": "json_schema", "name": "n", "schema": SCHEMA},
            Constraint(kind="json_schema", source=SOURCE, param="text.format.schema"),
        ),
    ],
)
def test_the_format_of_responses(form: dict[str, object], expected: Constraint | None) -> None:
    assert constraint(response({"text": {"format": form}})) == expected


@pytest.mark.parametrize(
    ("exchange", "param"),
    [
        (chat({"guided_regex": "a", "guided_choice": ["a"]}), "guided_choice"),
        (
            chat({"guided_json": {}, "structured_outputs": {"regex": "a"}}),
            "structured_outputs.regex",
        ),
        (chat({"structured_outputs": {"json": {}, "grammar": "g"}}), "structured_outputs.grammar"),
        (chat({"structured_outputs": {}}), "structured_outputs"),
        (completion({"structured_outputs": {"json": None}}), "structured_outputs"),
        (response({"structured_outputs": {"json_object": False}}), "structured_outputs"),
        (
            chat({"response_format": {"type": "json_object"}, "guided_regex": "a"}),
            "guided_regex",
        ),
        (
            response({"text": {"format": {"type": "json_object"}}, "guided_regex": "a"}),
            "guided_regex",
        ),
        (chat({"response_format": {"type": "json_schema"}}), "response_format.json_schema"),
        (
            response({"text": {"format": {"type": "json_schema", "name": "n"}}}),
            "text.format.schema",
        ),
        (
            response({"text": {"format": {"type": "json_schema", "schema": {}}}}),
            "text.format.name",
        ),
        (chat({"guided_json": "no JSON"}), "guided_json"),
        (chat({"guided_json": "[1]"}), "guided_json"),
        (chat({"guided_json": '"' + "x" * 70_000 + '"'}), "guided_json"),
        (chat({"guided_json": "[" * 30_000}), "guided_json"),
        (chat({"guided_choice": ["x" * 70_000]}), "guided_choice"),
        (chat(json_format({"title": "é" * 40_000})), "response_format.json_schema.schema"),
        (chat(json_format(nested(65))), "response_format.json_schema.schema"),
        (chat(json_format({"const": float("nan")})), "response_format.json_schema.schema"),
    ],
)
def test_mistakes_are_named(exchange: Exchange, param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        exchange.ask()
    assert type(refusal.value) is InvalidRequest
    assert refusal.value.param == param
    assert len(refusal.value.message) < 200


def test_a_deep_schema_within_the_bound_is_taken() -> None:
    assert constraint(chat(json_format(nested(64)))) is not None


@pytest.mark.parametrize(
    ("exchange", "param"),
    [
        (chat({"response_format": {"type": "structural_tag"}}), "response_format.type"),
        (response({"text": {"format": {"type": "grammar"}}}), "text.format.type"),
        (
            chat({"structured_outputs": {"structural_tag": {"a": 1}}}),
            "structured_outputs.structural_tag",
        ),
        (chat({"structured_outputs": {"chioce": ["a"]}}), "structured_outputs.chioce"),
        (completion({"structured_outputs": {"json_": {}}}), "structured_outputs.json_"),
        (
            chat({"structured_outputs": {"regex": "a", "disable_any_whitespace": True}}),
            "structured_outputs.disable_any_whitespace",
        ),
    ],
)
def test_what_is_not_done_is_named(exchange: Exchange, param: str) -> None:
    with pytest.raises(UnsupportedParameter) as refusal:
        exchange.ask()
    assert refusal.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        (json_format(None), "response_format.json_schema.schema"),
        (json_format([]), "response_format.json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "response_format.json_schema.name",
        ),
        (json_format({}, name="a b"), "response_format.json_schema.name"),
        (json_format({}, strict=1), "response_format.json_schema.strict"),
        ({"guided_json": 5}, "guided_json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_regex": "a" * 9000}, "guided_regex"),
        ({"guided_grammar": "a" * 70_000}, "guided_grammar"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"guided_choice": ["a", 1]}, "guided_choice.1"),
        ({"guided_choice": ["a"] * 1025}, "guided_choice"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        (
            {"structured_outputs": {"disable_any_whitespace": 1}},
            "structured_outputs.disable_any_whitespace",
        ),
    ],
)
def test_wrong_types_are_named(fields: dict[str, object], param: str) -> None:
    body = body_of(fields, messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(ValidationError) as refusal:
        CHAT.read(body)
    assert invalid_request(refusal.value, body.body).param == param


def test_every_choice_of_a_call_has_the_constraint() -> None:
    items = chat({"n": 3, "guided_regex": "a"}).ask().items
    expected = Constraint(kind="regex", source="a", param="guided_regex")
    assert [item.constraint for item in items if isinstance(item, GenerationItem)] == [expected] * 3
