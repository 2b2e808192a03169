"""The records as JSON: what each workload declares, readable by people and programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from inspect import getdoc

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headpond.engine import Json
from headpond.errors import HeadpondError
from headpond.http.auth import Keyring
from headpond.record import WorkloadRecord

INDEX_PATH = "/v1/workloads"


class Workloads:
    """Shows the records of the workloads that the caller's key opens."""

    def __init__(self, records: Sequence[WorkloadRecord], keyring: Keyring) -> None:
        self._records = tuple(records)
        self._keyring = keyring

    def routes(self) -> list[Route]:
        """Return the route of the index."""
        return [Route(INDEX_PATH, self._index)]

    async def _index(self, request: Request) -> Response:
        caller = self._keyring.authenticate(dict(request.scope["headers"]), INDEX_PATH)
        seen = [record for record in self._records if caller.opens(record.name)]
        listed = {"object": "list", "data": [readable(record) for record in seen]}
        return Response(json.dumps(listed), media_type="application/json")


def readable(value: object) -> Json:
    """Return a declaration as JSON: every field, types and functions by name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: readable(getattr(value, field.name)) for field in fields}
    if isinstance(value, Enum):
        return str(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): readable(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [readable(inner) for inner in value]
    return _named(value)


def _named(value: object) -> Json:
    if isinstance(value, type) and issubclass(value, HeadpondError):
        return {"error": value.__name__, "status": value.status, "code": value.code}
    if isinstance(value, type):
        return value.__name__
    name = getattr(value, "__qualname__", type(value).__name__)
    summary = (getdoc(value) or "").partition("\n")[0]
    return f"{name}: {summary}" if summary else name
