"""What descriptions of routes in the OpenAPI document are made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from headpond.dialect import ErrorForm
from headpond.engine import Json
from headpond.errors import HeadpondError

JsonObject = dict[str, Json]
Mode = Literal["validation", "serialization"]

_ERROR_HEADERS = {
    "x-request-id": "The request's identifier.",
    "x-should-retry": "`true` or `false`: whether the same request can go well later.",
    "retry-after": "On 429 and 503: seconds until then.",
    "retry-after-ms": "On 429 and 503: the same in milliseconds.",
}


class ErrorDetail(BaseModel):
    """What went wrong; all four keys are always there."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


class Schemas:
    """References to the JSON schemas of all wire types, and their definitions."""

    def __init__(self, wanted: Sequence[tuple[type[BaseModel], Mode]]) -> None:
        self._references, defined = models_json_schema(
            wanted, ref_template="#/components/schemas/{model}"
        )
        self.definitions: Json = defined.get("$defs", {})

    def body(self, model: type[BaseModel], mode: Mode = "serialization") -> JsonObject:
        """Return the `content` of a JSON body of this type."""
        return {"application/json": {"schema": self.reference(model, mode)}}

    def reference(self, model: type[BaseModel], mode: Mode = "serialization") -> Json:
        """Return the reference to a type's schema."""
        return self._references[model, mode]


def errors(
    classes: Iterable[type[HeadpondError]], schemas: Schemas, form: ErrorForm | None = None
) -> JsonObject:
    """Return the answers that errors become, by the statuses that a dialect gives them."""
    by_status: defaultdict[int, dict[str, str]] = defaultdict(dict)
    contents: dict[int, JsonObject] = {}
    for error in classes:
        answer = form(error()) if form is not None else None
        status = error.status if answer is None else answer.status
        by_status[status].setdefault(error.code or "null", error.default_message())
        contents[status] = schemas.body(ErrorBody) if answer is None else _alike(answer.body)
    return {
        str(status): {
            "description": " ".join(f"`{code}`: {text}" for code, text in codes.items()),
            "headers": header_texts(_ERROR_HEADERS),
            "content": contents[status],
        }
        for status, codes in sorted(by_status.items())
    }


def _alike(body: Mapping[str, Json]) -> JsonObject:
    """Return the `content` of bodies like a dialect's own error: flat, of texts."""
    names: list[Json] = [name for name, value in body.items() if isinstance(value, str)]
    kinds: JsonObject = {str(name): {"type": "string"} for name in names}
    schema: JsonObject = {"type": "object", "required": names, "properties": kinds}
    return {"application/json": {"schema": schema}}


def header_texts(described: Mapping[str, str]) -> JsonObject:
    """Return headers by what is said of them."""
    return {
        name: {"description": text, "schema": {"type": "string"}}
        for name, text in described.items()
    }


def ok(content: JsonObject) -> JsonObject:
    """Return the answer to what goes well."""
    return {"200": {"description": "The answer.", "content": content}}


def get(summary: str, responses: JsonObject) -> JsonObject:
    """Return a path that has a GET only."""
    return {"get": {"summary": summary, "responses": responses}}
