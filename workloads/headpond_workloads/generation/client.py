"""The client's resources for generation: `chat.completions` and `completions`."""

from __future__ import annotations

from typing import Literal, Unpack, overload

from headpond.client.async_transport import AsyncTransport
from headpond.client.stream import AsyncStream, Stream
from headpond.client.transport import Transport
from headpond.client.wire import encode, options_of
from headpond_workloads.generation.params import ChatParams, CompletionParams
from headpond_workloads.generation.schema_chat import (
    CHAT_PATH,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
)
from headpond_workloads.generation.schema_completions import (
    COMPLETIONS_PATH,
    Completion,
    CompletionRequest,
)


class ChatCompletions:
    """`POST /v1/chat/completions`."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    def create(
        self, *, stream: Literal[False] = False, **params: Unpack[ChatParams]
    ) -> ChatCompletion: ...
    @overload
    def create(
        self, *, stream: Literal[True], **params: Unpack[ChatParams]
    ) -> Stream[ChatCompletionChunk]: ...
    @overload
    def create(
        self, *, stream: bool, **params: Unpack[ChatParams]
    ) -> ChatCompletion | Stream[ChatCompletionChunk]: ...
    def create(
        self, *, stream: bool = False, **params: Unpack[ChatParams]
    ) -> ChatCompletion | Stream[ChatCompletionChunk]:
        """Go on with a conversation: at once, or as a stream of chunks.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, ChatCompletionRequest, stream=stream)
        if stream:
            return self._transport.stream(
                CHAT_PATH, body, ChatCompletionChunk, options=options_of(params)
            )
        return self._transport.post(CHAT_PATH, body, ChatCompletion, options=options_of(params))


class AsyncChatCompletions:
    """`POST /v1/chat/completions`."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    async def create(
        self, *, stream: Literal[False] = False, **params: Unpack[ChatParams]
    ) -> ChatCompletion: ...
    @overload
    async def create(
        self, *, stream: Literal[True], **params: Unpack[ChatParams]
    ) -> AsyncStream[ChatCompletionChunk]: ...
    @overload
    async def create(
        self, *, stream: bool, **params: Unpack[ChatParams]
    ) -> ChatCompletion | AsyncStream[ChatCompletionChunk]: ...
    async def create(
        self, *, stream: bool = False, **params: Unpack[ChatParams]
    ) -> ChatCompletion | AsyncStream[ChatCompletionChunk]:
        """Go on with a conversation: at once, or as a stream of chunks.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, ChatCompletionRequest, stream=stream)
        if stream:
            return await self._transport.stream(
                CHAT_PATH, body, ChatCompletionChunk, options=options_of(params)
            )
        return await self._transport.post(
            CHAT_PATH, body, ChatCompletion, options=options_of(params)
        )


class Chat:
    """Conversations."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self.completions = ChatCompletions(transport)


class AsyncChat:
    """Conversations."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self.completions = AsyncChatCompletions(transport)


class Completions:
    """`POST /v1/completions`."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    def create(
        self, *, stream: Literal[False] = False, **params: Unpack[CompletionParams]
    ) -> Completion: ...
    @overload
    def create(
        self, *, stream: Literal[True], **params: Unpack[CompletionParams]
    ) -> Stream[Completion]: ...
    @overload
    def create(
        self, *, stream: bool, **params: Unpack[CompletionParams]
    ) -> Completion | Stream[Completion]: ...
    def create(
        self, *, stream: bool = False, **params: Unpack[CompletionParams]
    ) -> Completion | Stream[Completion]:
        """Go on with texts: at once, or as a stream of chunks.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, CompletionRequest, stream=stream)
        if stream:
            return self._transport.stream(
                COMPLETIONS_PATH, body, Completion, options=options_of(params)
            )
        return self._transport.post(COMPLETIONS_PATH, body, Completion, options=options_of(params))


class AsyncCompletions:
    """`POST /v1/completions`."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    async def create(
        self, *, stream: Literal[False] = False, **params: Unpack[CompletionParams]
    ) -> Completion: ...
    @overload
    async def create(
        self, *, stream: Literal[True], **params: Unpack[CompletionParams]
    ) -> AsyncStream[Completion]: ...
    @overload
    async def create(
        self, *, stream: bool, **params: Unpack[CompletionParams]
    ) -> Completion | AsyncStream[Completion]: ...
    async def create(
        self, *, stream: bool = False, **params: Unpack[CompletionParams]
    ) -> Completion | AsyncStream[Completion]:
        """Go on with texts: at once, or as a stream of chunks.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, CompletionRequest, stream=stream)
        if stream:
            return await self._transport.stream(
                COMPLETIONS_PATH, body, Completion, options=options_of(params)
            )
        return await self._transport.post(
            COMPLETIONS_PATH, body, Completion, options=options_of(params)
        )
