"""The handshake of a WebSocket: what it says, and how it is accepted or refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl

from starlette.types import Message, Scope, Send

from headpond.dialect import ErrorForm
from headpond.errors import HeadpondError, InvalidRequest
from headpond.http.headers import Headers, request_id
from headpond.http.reply import Reply
from headpond.tenancy.allowance import Allowance

KEY_PROTOCOL = "openai-insecure-api-key."
"""Before a key that comes as a subprotocol: browsers can't set headers of WebSockets."""

_VENDOR_PROTOCOLS = "openai-"
"""Such subprotocols carry something for the server and are never the one that is spoken."""

_EVENT = "event_"
_REFUSAL_EXTENSION = "websocket.http.response"
_PRIVATE_CODES = 4000
_MOST_FIELDS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """How a client came.

    Attributes:
        request_id: Its own, or a new one.
        headers: By lower-case name; a key that came as a subprotocol is among them.
        path: Parameters of the route's path.
        query: Parameters of the query, the last one of each name.
        protocol: The subprotocol that will be spoken, if any.
    """

    request_id: str
    headers: Headers
    path: Mapping[str, str]
    query: Mapping[str, str]
    protocol: str | None

    @classmethod
    def read(cls, scope: Scope) -> Self:
        """Read a handshake.

        Raises:
            InvalidRequest: The query is not one.
        """
        headers: dict[bytes, bytes] = dict(scope["headers"])
        offered: list[str] = scope.get("subprotocols", [])
        keys = [each for each in offered if each.startswith(KEY_PROTOCOL)]
        if keys and b"authorization" not in headers:
            key = keys[0].removeprefix(KEY_PROTOCOL)
            headers[b"authorization"] = b"Bearer " + key.encode("latin-1", "replace")
        spoken = [each for each in offered if not each.startswith(_VENDOR_PROTOCOLS)]
        return cls(
            request_id=request_id(headers),
            headers=headers,
            path=scope.get("path_params", {}),
            query=_query(scope.get("query_string", b"")),
            protocol=spoken[0] if spoken else None,
        )

    def last_event(self) -> int:
        """Return the number of the last message that a client which comes back has.

        It may be written as the name of an event, too: `event_17`.

        Raises:
            InvalidRequest: It is no such number.
        """
        given = self.query.get("last_event", "0").removeprefix(_EVENT)
        if not (given.isascii() and given.isdigit() and len(given) < 16):
            raise InvalidRequest("last_event must be the number of an event.", param="last_event")
        return int(given)

    async def accept(self, send: Send, more: Iterable[tuple[bytes, bytes]]) -> None:
        """Accept it, with these headers among others.

        Raises:
            OSError: The client went away.
        """
        headers = [(b"x-request-id", self.request_id.encode()), *more]
        await send({"type": "websocket.accept", "subprotocol": self.protocol, "headers": headers})


async def refuse(
    scope: Scope,
    send: Send,
    error: HeadpondError,
    form: ErrorForm | None = None,
    allowance: Allowance | None = None,
) -> int:
    """Refuse a handshake as any request would be, and return the status.

    Where the server can't answer a handshake, it is closed with 4000 plus the status.
    """
    if _REFUSAL_EXTENSION not in (scope.get("extensions") or {}):
        code = _PRIVATE_CODES + error.status
        await send({"type": "websocket.close", "code": code, "reason": error.code or ""})
        return error.status

    async def as_answer(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    reply = Reply(as_answer, request_id(dict(scope["headers"])), form)
    reply.allowance = allowance
    await reply.fail(error)
    return reply.status


def _query(raw: bytes) -> dict[str, str]:
    try:
        text = raw.decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise InvalidRequest("The query can't be read.", param="query") from None
