"""Routes and dialects: how a workload's requests and events look on the wire.

A dialect is pure: wire types in, the workload's own items out, and back. It imports
neither torch nor ray, and knows nothing of HTTP beyond its own bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pydantic import BaseModel

from headpond.call import Done, Failed, Output
from headpond.engine import Json
from headpond.units import Work

Wire = TypeVar("Wire", bound=BaseModel)

ItemEvent = Output | Done | Failed


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What a wire request means.

    Attributes:
        model: The name in the body.
        items: The workload's own request objects.
        stream: Whether the caller wants events as they come.
    """

    model: str
    items: tuple[object, ...]
    stream: bool = False


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
    """One request in one dialect: what it asks for, and how its answer looks."""

    def ask(self) -> Ask:
        """Return what the request means.

        Raises:
            InvalidRequest: Fields that contradict each other; names the field.
        """
        ...

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> BaseModel:
        """Fold every event of a finished call into one body.

        Raises:
            HeadpondError: An item failed, and the dialect has no place for that.
        """
        ...

    def stream(self, heading: Heading) -> StreamWriter:
        """Return the writer of a stream; called only where the route streams."""
        ...


@dataclass(frozen=True, kw_only=True)
class Route:
    """One HTTP route of a workload, built by `Route.json`.

    Attributes:
        method: The HTTP method.
        path: The path below the app's prefix.
        summary: One line for the OpenAPI document.
        request: The wire type of the JSON body.
        response: The wire type of the answer.
        chunk: The wire type of each event's data, where the route streams by SSE.
        example: A body that works with any model of the workload, `model` left out; shown
            in the OpenAPI document and run by the demo.
        read: Parses a body into an exchange; raises pydantic's `ValidationError`.
    """

    method: str
    path: str
    summary: str
    request: type[BaseModel]
    response: type[BaseModel]
    chunk: type[BaseModel] | None
    example: Mapping[str, Json]
    read: Callable[[bytes], Exchange]

    @classmethod
    def json(
        cls,
        path: str,
        summary: str,
        *,
        request: type[Wire],
        exchange: Callable[[Wire], Exchange],
        response: type[BaseModel],
        chunk: type[BaseModel] | None = None,
        example: Mapping[str, Json],
    ) -> Route:
        """Declare a POST route whose body is JSON of type `request`."""
        return cls(
            method="POST",
            path=path,
            summary=summary,
            request=request,
            response=response,
            chunk=chunk,
            example=example,
            read=lambda body: exchange(request.model_validate_json(body)),
        )
