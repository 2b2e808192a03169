"""Counts of keys that a schema asks for, and a grammar can't hold.

A grammar counts what is written, and can't know that two keys are the same: by it
`{"a": 1, "a": 1}` has two, to who reads it one. Keys that are named come once, in their order,
so only those that are not can be repeated; one alone can't be.
"""

from __future__ import annotations

from collections.abc import Iterator

from headpond.engine import Json
from headpond.errors import InvalidRequest

_ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SEVERAL = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


def check_counts(schema: Json, param: str) -> None:
    """Refuse a schema that asks for more keys than are sure to differ.

    Raises:
        InvalidRequest: Names `param`.
    """
    if not isinstance(schema, dict):
        return
    least = schema.get("minProperties")
    required = schema.get("required")
    named = len({*map(str, required)}) if isinstance(required, list) else 0
    if isinstance(least, int | float) and least > named + 1:
        raise InvalidRequest(
            "it can't be held: minProperties may be one more than there are required keys, for "
            "others may be repeated",
            param=param,
        )
    for inner in _inside(schema):
        check_counts(inner, param)


def _inside(schema: dict[str, Json]) -> Iterator[Json]:
    """Yield the schemas that a schema is made of."""
    for name in _ONE:
        yield schema.get(name)
    for name in _SEVERAL:
        several = schema.get(name)
        if isinstance(several, list):
            yield from several
    for name in _NAMED:
        named = schema.get(name)
        if isinstance(named, dict):
            yield from named.values()
