"""The client: every workload's resources over one transport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self, Unpack

import httpx2

from headpond.client.async_transport import AsyncTransport
from headpond.client.batches import AsyncBatches, Batches
from headpond.client.catalogue import WORKLOADS_PATH, AsyncModels, Models, Workload, WorkloadList
from headpond.client.config import DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_S, ClientConfig
from headpond.client.files import AsyncFiles, Files
from headpond.client.transport import Transport
from headpond.client.usage import AsyncUsage, Usage
from headpond.client.wire import encode
from headpond_workloads.diffusion.client import AsyncImages, Images
from headpond_workloads.embedding.client import AsyncEmbeddings, Embeddings
from headpond_workloads.generation.client import AsyncChat, AsyncCompletions, Chat, Completions
from headpond_workloads.generation.client_responses import AsyncResponses, Responses
from headpond_workloads.generation.params import DetokenizeParams, TokenizeParams
from headpond_workloads.generation.schema_tokenize import (
    DETOKENIZE_PATH,
    TOKENIZE_PATH,
    Detokenization,
    DetokenizeRequest,
    Tokenization,
    TokenizeRequest,
)
from headpond_workloads.reranking.client_params import RerankParams
from headpond_workloads.reranking.schema import RERANK_PATH, Ranking, RerankRequest
from headpond_workloads.speech.client import AsyncTranscriptions, Transcriptions
from headpond_workloads.vision.client import AsyncClassifications, Classifications


class Client:
    """Talks to a Headpond server, or to any other that speaks the same dialects.

    >>> with Client() as client:  # doctest: +SKIP
    ...     answer = client.chat.completions.create(
    ...         model="chat", messages=[{"role": "user", "content": "Hello"}]
    ...     )
    """

    batches: Batches
    chat: Chat
    classifications: Classifications
    completions: Completions
    embeddings: Embeddings
    files: Files
    images: Images
    models: Models
    responses: Responses
    transcriptions: Transcriptions
    usage: Usage

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        deadline_s: float | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
        headers: Mapping[str, str] | None = None,
        http_client: httpx2.Client | None = None,
    ) -> None:
        """Keep the settings; nothing is sent yet.

        Args:
            base_url: The server; `HEADPOND_BASE_URL`, else http://localhost:8000.
            api_key: Sent as bearer token; `HEADPOND_API_KEY`, else none.
            timeout_s: The longest wait for the next bytes.
            deadline_s: Time for a whole call, retries included; the server keeps it too.
            max_retries: How often a call that may be repeated is sent again.
            headers: Sent with every request.
            http_client: Used instead of a client of our own, and left open by `close`.

        Raises:
            ValueError: A setting cannot work; names it.
        """
        url, key = ClientConfig.locate(base_url, api_key)
        config = ClientConfig(
            base_url=url,
            api_key=key,
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            max_retries=max_retries,
            headers=headers or {},
        )
        self._bind(Transport(config, http_client))

    def _bind(self, transport: Transport) -> None:
        self._transport = transport
        self.batches = Batches(transport)
        self.chat = Chat(transport)
        self.classifications = Classifications(transport)
        self.completions = Completions(transport)
        self.embeddings = Embeddings(transport)
        self.files = Files(transport)
        self.images = Images(transport)
        self.models = Models(transport)
        self.usage = Usage(transport)
        self.responses = Responses(transport)
        self.transcriptions = Transcriptions(transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, unless they belong to someone else."""
        self._transport.close()

    def with_options(
        self,
        *,
        timeout_s: float | None = None,
        deadline_s: float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Client:
        """Return a client with some settings changed, over the same connections."""
        config = _changed(
            self._transport.config,
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            max_retries=max_retries,
            headers=headers,
        )
        client = object.__new__(Client)
        client._bind(self._transport.with_config(config))
        return client

    def workloads(self) -> tuple[Workload, ...]:
        """Return the workloads the server knows, as they declare themselves."""
        return self._transport.get(WORKLOADS_PATH, WorkloadList).data

    def rerank(self, **params: Unpack[RerankParams]) -> Ranking:
        """Return documents by how well they answer a query, the best first.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        return self._transport.post(RERANK_PATH, encode(params, RerankRequest), Ranking)

    def tokenize(self, **params: Unpack[TokenizeParams]) -> Tokenization:
        """Return the tokens of a prompt or a conversation.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, TokenizeRequest)
        return self._transport.post(TOKENIZE_PATH, body, Tokenization)

    def detokenize(self, **params: Unpack[DetokenizeParams]) -> Detokenization:
        """Return the text of tokens.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, DetokenizeRequest)
        return self._transport.post(DETOKENIZE_PATH, body, Detokenization)


class AsyncClient:
    """Talks to a Headpond server from asyncio; otherwise the same as `Client`.

    >>> async with AsyncClient() as client:  # doctest: +SKIP
    ...     async with await client.completions.create(
    ...         model="chat", prompt="Once", stream=True
    ...     ) as stream:
    ...         async for chunk in stream:
    ...             print(chunk.choices[0].text, end="")
    """

    batches: AsyncBatches
    chat: AsyncChat
    classifications: AsyncClassifications
    completions: AsyncCompletions
    embeddings: AsyncEmbeddings
    files: AsyncFiles
    images: AsyncImages
    models: AsyncModels
    responses: AsyncResponses
    transcriptions: AsyncTranscriptions
    usage: AsyncUsage

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        deadline_s: float | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
        headers: Mapping[str, str] | None = None,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        """Keep the settings, which are those of `Client`; nothing is sent yet.

        Raises:
            ValueError: A setting cannot work; names it.
        """
        url, key = ClientConfig.locate(base_url, api_key)
        config = ClientConfig(
            base_url=url,
            api_key=key,
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            max_retries=max_retries,
            headers=headers or {},
        )
        self._bind(AsyncTransport(config, http_client))

    def _bind(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self.batches = AsyncBatches(transport)
        self.chat = AsyncChat(transport)
        self.classifications = AsyncClassifications(transport)
        self.completions = AsyncCompletions(transport)
        self.embeddings = AsyncEmbeddings(transport)
        self.files = AsyncFiles(transport)
        self.images = AsyncImages(transport)
        self.models = AsyncModels(transport)
        self.usage = AsyncUsage(transport)
        self.responses = AsyncResponses(transport)
        self.transcriptions = AsyncTranscriptions(transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, unless they belong to someone else."""
        await self._transport.close()

    def with_options(
        self,
        *,
        timeout_s: float | None = None,
        deadline_s: float | None = None,
        max_retries: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncClient:
        """Return a client with some settings changed, over the same connections."""
        config = _changed(
            self._transport.config,
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            max_retries=max_retries,
            headers=headers,
        )
        client = object.__new__(AsyncClient)
        client._bind(self._transport.with_config(config))
        return client

    async def workloads(self) -> tuple[Workload, ...]:
        """Return the workloads the server knows, as they declare themselves."""
        return (await self._transport.get(WORKLOADS_PATH, WorkloadList)).data

    async def rerank(self, **params: Unpack[RerankParams]) -> Ranking:
        """Return documents by how well they answer a query, the best first.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        return await self._transport.post(RERANK_PATH, encode(params, RerankRequest), Ranking)

    async def tokenize(self, **params: Unpack[TokenizeParams]) -> Tokenization:
        """Return the tokens of a prompt or a conversation.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, TokenizeRequest)
        return await self._transport.post(TOKENIZE_PATH, body, Tokenization)

    async def detokenize(self, **params: Unpack[DetokenizeParams]) -> Detokenization:
        """Return the text of tokens.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, DetokenizeRequest)
        return await self._transport.post(DETOKENIZE_PATH, body, Detokenization)


def _changed(
    config: ClientConfig,
    *,
    timeout_s: float | None,
    deadline_s: float | None,
    max_retries: int | None,
    headers: Mapping[str, str] | None,
) -> ClientConfig:
    """Return the settings with what is not None changed; headers are added to."""
    return replace(
        config,
        timeout_s=config.timeout_s if timeout_s is None else timeout_s,
        deadline_s=config.deadline_s if deadline_s is None else deadline_s,
        max_retries=config.max_retries if max_retries is None else max_retries,
        headers=config.headers if headers is None else {**config.headers, **headers},
    )
