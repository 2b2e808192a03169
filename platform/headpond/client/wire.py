"""What goes out and what comes in: requests checked before they leave, answers as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar, cast

import httpx2
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from headpond.client.attempts import Attempts
from headpond.client.config import ClientConfig
from headpond.client.errors import ResponseInvalid
from headpond.client.options import CallOptions
from headpond.client.upload import Upload
from headpond.errors import InvalidRequest

Wire = TypeVar("Wire", bound=BaseModel)

JSON = "application/json"
EVENTS = "text/event-stream"
CONTENT = "application/octet-stream"
TEXT = "text/plain, */*"
BLOCK_BYTES = 2**18
NO_WEBSOCKETS = "this needs websockets: pip install 'headpond[realtime]'"


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """One call, as it is sent in each of its attempts.

    Attributes:
        path: The path below the base URL, with its leading slash.
        body: JSON, a file that is sent as a form, or None for a call without a body.
        accept: The content type of the answer.
        config: The client's settings, or those of this call.
    """

    method: str
    path: str
    body: bytes | Upload | None = None
    accept: str = JSON
    config: ClientConfig

    def build(self, http: httpx2.Client | httpx2.AsyncClient, attempts: Attempts) -> httpx2.Request:
        """Return the request of the next attempt.

        Raises:
            DeadlineExceeded: No time is left for one.
        """
        headers = {"accept": self.accept, **self.config.request_headers(), **attempts.headers()}
        url = f"{self.config.base_url}{self.path}"
        timeout = attempts.timeout()
        if isinstance(self.body, Upload):
            fields, files = self.body.fields, self.body.files()
            return http.build_request(
                self.method, url, data=fields, files=files, headers=headers, timeout=timeout
            )
        if self.body is not None:
            headers["content-type"] = JSON
        return http.build_request(
            self.method, url, content=self.body, headers=headers, timeout=timeout
        )


_OPTIONS = CallOptions.__annotations__.keys()


def options_of(params: Mapping[str, object]) -> CallOptions:
    """Return those of a call's keyword arguments that are about the call."""
    given = {name: value for name, value in params.items() if name in _OPTIONS}
    return cast("CallOptions", given)


def encode(
    params: Mapping[str, object], request: type[BaseModel], *, stream: bool = False
) -> bytes:
    """Return the JSON of a body, checked as the server will check it.

    Options of the call are passed over. Fields that the wire type does not know, as servers
    may be newer, come in `extra_body`.

    Raises:
        InvalidRequest: Names the field at fault.
        TypeError: A keyword argument is none that is known.
    """
    fields = {name: value for name, value in params.items() if name not in _OPTIONS}
    unknown = sorted(fields.keys() - _names(request))
    if unknown:
        raise TypeError(
            f"unexpected keyword argument {unknown[0]!r}; "
            "fields that this client does not know go into extra_body"
        )
    extra = params.get("extra_body")
    fields |= extra if isinstance(extra, Mapping) else {}
    try:
        body = to_json(fields | ({"stream": True} if stream else {}))
    except PydanticSerializationError as error:
        raise InvalidRequest("The request holds a value that JSON cannot express.") from error
    try:
        request.model_validate_json(body)
    except ValidationError as error:
        from headpond.http.errors import invalid_request  # noqa: PLC0415 - of refusals only

        refusal = invalid_request(error, body)
    else:
        return body
    # Not chained: pydantic repeats the values it refused.
    raise refusal


@cache
def _names(request: type[BaseModel]) -> frozenset[str]:
    return frozenset(each.alias or name for name, each in request.model_fields.items())


def parse(response: httpx2.Response, answer: type[Wire]) -> Wire:
    """Return the body of an answer that was read.

    Raises:
        ResponseInvalid: It is not of the type that the route promises.
    """
    try:
        return answer.model_validate_json(response.content)
    except ValidationError:
        pass
    raise ResponseInvalid(f"The answer is no {answer.__name__}.")
