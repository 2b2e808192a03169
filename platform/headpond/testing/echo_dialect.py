"""The wire types and the dialect of the echo workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from headpond.call import Done, Failed, Output
from headpond.dialect import Ask, Heading, ItemEvent, SseEvent
from headpond.units import Work

MOST_CHUNKS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class EchoItem:
    """A text to say back in `chunks` pieces."""

    text: str
    chunks: int = 1


class EchoRequest(BaseModel):
    """The body of `POST /v1/echo`."""

    model: str
    text: str
    chunks: int = Field(default=1, ge=1, le=MOST_CHUNKS)
    stream: bool = False


class EchoResponse(BaseModel):
    """The answer: the same text."""

    model: str
    text: str


class EchoChunk(BaseModel):
    """The data of one event: the next piece of the text."""

    text: str


class EchoExchange:
    """One request to the echo workload."""

    def __init__(self, request: EchoRequest) -> None:
        """Answer `request`."""
        self._request = request

    def ask(self) -> Ask:
        """Return what the request means."""
        request = self._request
        item = EchoItem(text=request.text, chunks=request.chunks)
        return Ask(model=request.model, items=(item,), stream=request.stream)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> EchoResponse:
        """Join the pieces."""
        del work
        return EchoResponse(model=heading.model, text="".join(_pieces(events)))

    def stream(self, heading: Heading) -> EchoWriter:
        """Return the writer of one stream."""
        del heading
        return EchoWriter()


class EchoWriter:
    """Writes each piece as one event, and `[DONE]` at the end."""

    def write(self, events: Sequence[ItemEvent]) -> Sequence[SseEvent]:
        """Render the pieces of one step."""
        return [SseEvent(data=EchoChunk(text=piece).model_dump_json()) for piece in _pieces(events)]

    def close(self, work: Work) -> Sequence[SseEvent]:
        """Render the end."""
        del work
        return (SseEvent(data="[DONE]"),)


def _pieces(events: Sequence[ItemEvent]) -> list[str]:
    pieces = []
    for event in events:
        match event:
            case Output(payload=payload):
                pieces.append(str(payload))
            case Failed(error=error):
                raise error
            case Done():
                pass
    return pieces
