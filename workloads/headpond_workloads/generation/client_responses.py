"""The client's resource for `POST /v1/responses`."""

from __future__ import annotations

from typing import Literal, Unpack, overload

from headpond.client.async_transport import AsyncTransport
from headpond.client.stream import AsyncStream, Stream
from headpond.client.transport import Transport
from headpond.client.wire import encode, options_of
from headpond_workloads.generation.params_responses import ResponseParams
from headpond_workloads.generation.schema_responses import (
    RESPONSES_PATH,
    Response,
    ResponseRequest,
)
from headpond_workloads.generation.schema_responses_events import ResponseEvent


class Responses:
    """`POST /v1/responses`."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    def create(
        self, *, stream: Literal[False] = False, **params: Unpack[ResponseParams]
    ) -> Response: ...
    @overload
    def create(
        self, *, stream: Literal[True], **params: Unpack[ResponseParams]
    ) -> Stream[ResponseEvent]: ...
    @overload
    def create(
        self, *, stream: bool, **params: Unpack[ResponseParams]
    ) -> Response | Stream[ResponseEvent]: ...
    def create(
        self, *, stream: bool = False, **params: Unpack[ResponseParams]
    ) -> Response | Stream[ResponseEvent]:
        """Answer an input: at once, or as a stream of events.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, ResponseRequest, stream=stream)
        if stream:
            return self._transport.stream(
                RESPONSES_PATH, body, ResponseEvent, is_last=_is_last, options=options_of(params)
            )
        return self._transport.post(RESPONSES_PATH, body, Response, options=options_of(params))


class AsyncResponses:
    """`POST /v1/responses`."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    async def create(
        self, *, stream: Literal[False] = False, **params: Unpack[ResponseParams]
    ) -> Response: ...
    @overload
    async def create(
        self, *, stream: Literal[True], **params: Unpack[ResponseParams]
    ) -> AsyncStream[ResponseEvent]: ...
    @overload
    async def create(
        self, *, stream: bool, **params: Unpack[ResponseParams]
    ) -> Response | AsyncStream[ResponseEvent]: ...
    async def create(
        self, *, stream: bool = False, **params: Unpack[ResponseParams]
    ) -> Response | AsyncStream[ResponseEvent]:
        """Answer an input: at once, or as a stream of events.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, ResponseRequest, stream=stream)
        if stream:
            return await self._transport.stream(
                RESPONSES_PATH, body, ResponseEvent, is_last=_is_last, options=options_of(params)
            )
        return await self._transport.post(
            RESPONSES_PATH, body, Response, options=options_of(params)
        )


def _is_last(event: ResponseEvent) -> bool:
    return event.is_last
