"""Routes and dialects: how a workload's requests and events look on the wire.

A dialect is pure: wire types in, the workload's own items out, and back. It imports
neither torch nor ray, and knows nothing of HTTP beyond its own bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from pydantic import BaseModel

from headpond.call import Done, Ended, Event, Failed, Output
from headpond.engine import Json
from headpond.errors import HeadpondError, InvalidRequest, UnsupportedParameter
from headpond.form import is_form, read_form
from headpond.sink import Placement
from headpond.units import Work

if TYPE_CHECKING:
    from headpond.conversation import Conversation, Handshake

Wire = TypeVar("Wire", bound=BaseModel)

ItemEvent = Output | Done | Failed


def parted(batch: Sequence[Event]) -> tuple[list[ItemEvent], Ended | None]:
    """Return the item events of a batch, and its `Ended`, which can only come last."""
    ended = batch[-1] if batch else None
    return (
        [event for event in batch if not isinstance(event, Ended)],
        ended if isinstance(ended, Ended) else None,
    )


SOCKET_METHOD = "WEBSOCKET"
"""Stands where an HTTP route has its method."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What a wire request means.

    Attributes:
        model: The name in the body or the path; None where a dialect has no place for it,
            for the one model that is served here.
        items: The workload's own request objects.
        stream: Whether the caller wants events as they come.
        store: Where the outputs go before the call is done; None for only to the caller.
    """

    model: str | None
    items: tuple[object, ...]
    stream: bool = False
    store: Placement | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """A request as a dialect reads it.

    Attributes:
        body: The whole body; empty where the method has none.
        content_type: The header of that name, or the empty text.
        path: Parameters of the route's path.
        headers: By lower-case name, as ASGI has them.
    """

    body: bytes = b""
    content_type: str = ""
    path: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[bytes, bytes] = field(default_factory=dict)

    def header(self, name: str) -> str | None:
        """Return a header by its lower-case name; None when there is none."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Raw:
    """An answer whose body is not JSON.

    Attributes:
        content: The body.
        media_type: Its content type.
        headers: What else is told of it.
    """

    content: bytes
    media_type: str
    headers: tuple[tuple[str, str], ...] = ()


def rendered(body: BaseModel | Raw) -> Raw:
    """Return the body of an answer as bytes: JSON, unless it was not to be that."""
    if isinstance(body, Raw):
        return body
    return Raw(content=body.model_dump_json().encode(), media_type="application/json")


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorAnswer:
    """An error as a dialect's own clients expect it."""

    status: int
    body: Mapping[str, Json]


ErrorForm = Callable[[HeadpondError], ErrorAnswer]
"""How a dialect writes errors, where it does not do so as OpenAI does."""


@dataclass(frozen=True, slots=True)
class Unserved:
    """Addresses of a dialect that no route answers: its clients get an error they can read.

    Attributes:
        path: One address; with a slash at its end, all below it.
        fail: How the error looks.
    """

    path: str
    fail: ErrorForm

    def holds(self, path: str) -> bool:
        """Say whether an address is one of these."""
        return path.startswith(self.path) if self.path.endswith("/") else path == self.path


@dataclass(frozen=True, kw_only=True, slots=True)
class Heading:
    """What dialects repeat in every body of one answer.

    Attributes:
        request_id: The call's identifier.
        created_s: Unix time at which it was accepted.
        model: The name the caller asked for.
        fingerprint: The bundle, as in `Accepted.bundle`.
    """

    request_id: str
    created_s: int
    model: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SseEvent:
    """One server-sent event: a line of JSON (or `[DONE]`), and a name for named events."""

    data: str
    name: str | None = None


class StreamWriter(Protocol):
    """Turns the events of one answer into server-sent events."""

    def write(self, events: Sequence[ItemEvent]) -> Sequence[SseEvent]:
        """Render the events of one engine step."""
        ...

    def close(self, work: Work) -> Sequence[SseEvent]:
        """Render what follows the last event of a call that went well."""
        ...


class Exchange(Protocol):
    """One request in one dialect: what it asks for, and how its answer looks.

    To be derived from: an exchange whose answer comes whole says nothing of streams.
    """

    def ask(self) -> Ask:
        """Return what the request means.

        Raises:
            InvalidRequest: Fields that contradict each other; names the field.
        """
        ...

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> BaseModel | Raw:
        """Fold every event of a finished call into one body.

        Raises:
            HeadpondError: An item failed, and the dialect has no place for that.
        """
        ...

    def stream(self, heading: Heading) -> StreamWriter:
        """Return the writer of a stream; called only where the route streams.

        Raises:
            UnsupportedParameter: The answer comes whole.
        """
        raise UnsupportedParameter("this answer is not streamed", param="stream")


@dataclass(frozen=True, kw_only=True)
class Route:
    """One route of a workload, built by `Route.json`, `Route.get` or `Route.socket`.

    Attributes:
        method: The HTTP method; `WEBSOCKET` where a WebSocket is opened.
        path: The path below the app's prefix; may hold parameters, e.g. `{model}`.
        summary: One line for the OpenAPI document.
        request: The wire type of the JSON body; None where there is no body.
        response: The wire type of the answer; None of a WebSocket, which has messages.
        chunk: The wire type of each event's data, where the route streams by SSE.
        form: Whether the same fields may come as `multipart/form-data`.
        example: A body that works with any model of the workload, `model` left out; shown
            in the OpenAPI document and run by the demo.
        read: Parses a request into an exchange; raises pydantic's `ValidationError`.
        fail: How errors look; OpenAI's envelope when absent.
        conversation: Begins a conversation with who opens the WebSocket; None of HTTP routes.
            Raises `HeadpondError` to refuse the handshake.
    """

    method: str
    path: str
    summary: str
    request: type[BaseModel] | None
    response: type[BaseModel] | None
    chunk: type[BaseModel] | None = None
    form: bool = False
    example: Mapping[str, Json]
    read: Callable[[Incoming], Exchange]
    fail: ErrorForm | None = None
    conversation: Callable[[Handshake], Conversation] | None = None

    @classmethod
    def json(  # noqa: PLR0913 - a declaration, by keyword
        cls,
        path: str,
        summary: str,
        *,
        request: type[Wire],
        exchange: Callable[[Wire], Exchange],
        response: type[BaseModel],
        chunk: type[BaseModel] | None = None,
        form: bool = False,
        example: Mapping[str, Json],
        fail: ErrorForm | None = None,
    ) -> Route:
        """Declare a POST route whose body is JSON of type `request`, or the same as a form.

        Of a form, files reach the wire type as bytes and fields as texts; a field that comes
        more than once, or whose name ends with `[]`, is a list.
        """

        def read(incoming: Incoming) -> Exchange:
            if form and is_form(incoming.content_type):
                fields = read_form(incoming.body, incoming.content_type)
                return exchange(request.model_validate(fields))
            return exchange(request.model_validate_json(incoming.body))

        return cls(
            method="POST",
            path=path,
            summary=summary,
            request=request,
            response=response,
            chunk=chunk,
            form=form,
            example=example,
            read=read,
            fail=fail,
        )

    @classmethod
    def get(
        cls,
        path: str,
        summary: str,
        *,
        exchange: Callable[[Incoming], Exchange],
        response: type[BaseModel],
        fail: ErrorForm | None = None,
    ) -> Route:
        """Declare a GET route; what it asks is answered by the model's engine as any call."""
        return cls(
            method="GET",
            path=path,
            summary=summary,
            request=None,
            response=response,
            example={},
            read=exchange,
            fail=fail,
        )

    @classmethod
    def socket(
        cls,
        path: str,
        summary: str,
        *,
        conversation: Callable[[Handshake], Conversation],
        example: Mapping[str, Json] | None = None,
        fail: ErrorForm | None = None,
    ) -> Route:
        """Declare a WebSocket; `example` is a client's first message, for the document."""
        return cls(
            method=SOCKET_METHOD,
            path=path,
            summary=summary,
            request=None,
            response=None,
            example=example or {},
            read=_no_body,
            fail=fail,
            conversation=conversation,
        )


def _no_body(_: Incoming) -> NoReturn:
    raise InvalidRequest("This address speaks WebSocket.")
