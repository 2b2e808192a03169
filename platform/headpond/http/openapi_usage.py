"""Usage in the OpenAPI document."""

from __future__ import annotations

from pydantic import BaseModel

from headpond.engine import Json
from headpond.errors import (
    AuthenticationFailed,
    HeadpondError,
    InvalidRequest,
    Overloaded,
    PermissionDenied,
)
from headpond.http.openapi_parts import JsonObject, Mode, Schemas, errors, ok
from headpond.usage_wire import USAGE_GROUPS, USAGE_PATH, UsageReport

WIRE_TYPES: tuple[tuple[type[BaseModel], Mode], ...] = ((UsageReport, "serialization"),)

_REFUSALS: tuple[type[HeadpondError], ...] = (
    InvalidRequest,
    AuthenticationFailed,
    PermissionDenied,
    Overloaded,
)
_TIME = "Unix seconds, or ISO 8601; by whole hours."


def paths(schemas: Schemas) -> JsonObject:
    """Return the path of usage."""
    described = {
        "start": f"From then on, 30 days before the end unless said. {_TIME}",
        "end": f"Until then, now unless said. {_TIME}",
        "group_by": f"What is told apart, by commas: some of {', '.join(USAGE_GROUPS)}.",
        "tenant": "Whose; another one's is for keys with `admin`, and everybody's by default.",
    }
    parameters: list[Json] = [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
        for name, text in described.items()
    ]
    return {
        USAGE_PATH: {
            "get": {
                "summary": "Tell what calls came to.",
                "operationId": "usage",
                "parameters": parameters,
                "responses": {
                    **ok(schemas.body(UsageReport)),
                    **errors(_REFUSALS, schemas),
                },
            }
        }
    }
