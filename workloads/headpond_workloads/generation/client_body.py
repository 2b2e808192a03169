"""Keyword arguments as the JSON of a request."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from headpond.client.wire import encode


def body_of(params: Mapping[str, object], request: type[BaseModel], *, stream: bool) -> bytes:
    """Return the JSON body; `extra_body` holds fields that this client does not know.

    Raises:
        InvalidRequest: Names the field at fault.
    """
    extra = params.get("extra_body")
    fields = {name: value for name, value in params.items() if name != "extra_body"}
    merged = fields | dict(extra if isinstance(extra, Mapping) else {})
    return encode(merged | ({"stream": True} if stream else {}), request)
