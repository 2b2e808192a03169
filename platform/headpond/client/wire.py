"""What goes out and what comes in: requests checked before they leave, answers as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from headpond.client.attempts import Attempts
from headpond.client.config import ClientConfig
from headpond.client.errors import ResponseInvalid
from headpond.client.upload import Upload
from headpond.errors import InvalidRequest
from headpond.http.errors import invalid_request

Wire = TypeVar("Wire", bound=BaseModel)

JSON = "application/json"
EVENTS = "text/event-stream"
CONTENT = "application/octet-stream"
BLOCK_BYTES = 2**18


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """One call, as it is sent in each of its attempts.

    Attributes:
        path: The path below the base URL, with its leading slash.
        body: JSON, or None for a call without a body.
        upload: A file that is sent as a form instead of a body.
        accept: The content type of the answer.
        headers: Of this call only.
    """

    method: str
    path: str
    body: bytes | None = None
    upload: Upload | None = None
    accept: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def build(
        self, http: httpx2.Client | httpx2.AsyncClient, config: ClientConfig, attempts: Attempts
    ) -> httpx2.Request:
        """Return the request of the next attempt.

        Raises:
            DeadlineExceeded: No time is left for one.
        """
        headers = {"accept": self.accept, **config.request_headers(), **attempts.headers()}
        headers |= self.headers
        if self.body is not None:
            headers["content-type"] = JSON
        return http.build_request(
            self.method,
            f"{config.base_url}{self.path}",
            content=self.body,
            data=None if self.upload is None else self.upload.fields,
            files=None if self.upload is None else self.upload.files(),
            headers=headers,
            timeout=attempts.timeout(),
        )


def encode(
    params: Mapping[str, object], request: type[BaseModel], *, stream: bool = False
) -> bytes:
    """Return the JSON of a body, checked as the server will check it.

    Fields that the wire type does not know are sent all the same: servers may be newer. They
    come in `extra_body`, as type checkers know the other parameters.

    Raises:
        InvalidRequest: Names the field at fault.
    """
    fields = {name: value for name, value in params.items() if name != "extra_body"}
    extra = params.get("extra_body")
    fields |= extra if isinstance(extra, Mapping) else {}
    try:
        body = to_json(fields | ({"stream": True} if stream else {}))
    except PydanticSerializationError as error:
        raise InvalidRequest("The request holds a value that JSON cannot express.") from error
    try:
        request.model_validate_json(body)
    except ValidationError as error:
        refusal = invalid_request(error, body)
    else:
        return body
    # Not chained: pydantic repeats the values it refused.
    raise refusal


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
