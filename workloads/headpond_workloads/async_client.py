"""The client for asyncio: every workload's resources over one transport."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import httpx2

from headpond.client.async_transport import AsyncTransport
from headpond.client.config import DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_S, ClientConfig
from headpond.client.options import CallOptions
from headpond.client.wire import encode, options_of

# What a program uses of the workloads is loaded when it does: their types take their time.
if TYPE_CHECKING:
    from headpond.client.async_batches import AsyncBatches
    from headpond.client.async_usage import AsyncUsage
    from headpond.client.catalogue import AsyncModels, Workload
    from headpond.client.files import AsyncFiles
    from headpond_workloads.diffusion.client import AsyncImages
    from headpond_workloads.embedding.client import AsyncEmbeddings
    from headpond_workloads.generation.client import AsyncChat, AsyncCompletions
    from headpond_workloads.generation.client_responses import AsyncResponses
    from headpond_workloads.generation.params import DetokenizeParams, TokenizeParams
    from headpond_workloads.generation.schema_tokenize import Detokenization, Tokenization
    from headpond_workloads.reranking.client_params import RerankParams
    from headpond_workloads.reranking.schema import Ranking
    from headpond_workloads.speech.client import AsyncTranscriptions
    from headpond_workloads.speech.client_realtime import AsyncRealtime
    from headpond_workloads.vision.client import AsyncClassifications


class AsyncClient:
    """Talks to a Headpond server from asyncio; otherwise the same as `Client`.

    >>> async with AsyncClient() as client:  # doctest: +SKIP
    ...     async with await client.completions.create(
    ...         model="chat", prompt="Once", stream=True
    ...     ) as stream:
    ...         async for chunk in stream:
    ...             print(chunk.choices[0].text, end="")
    """

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
        self._transport = AsyncTransport(config, http_client)

    @cached_property
    def batches(self) -> AsyncBatches:
        """Files of requests that are answered in the background."""
        from headpond.client.async_batches import AsyncBatches  # noqa: PLC0415

        return AsyncBatches(self._transport)

    @cached_property
    def chat(self) -> AsyncChat:
        """Conversations."""
        from headpond_workloads.generation.client import AsyncChat  # noqa: PLC0415

        return AsyncChat(self._transport)

    @cached_property
    def classifications(self) -> AsyncClassifications:
        """Classes of images."""
        from headpond_workloads.vision.client import AsyncClassifications  # noqa: PLC0415

        return AsyncClassifications(self._transport)

    @cached_property
    def completions(self) -> AsyncCompletions:
        """Texts that go on."""
        from headpond_workloads.generation.client import AsyncCompletions  # noqa: PLC0415

        return AsyncCompletions(self._transport)

    @cached_property
    def embeddings(self) -> AsyncEmbeddings:
        """Vectors of texts."""
        from headpond_workloads.embedding.client import AsyncEmbeddings  # noqa: PLC0415

        return AsyncEmbeddings(self._transport)

    @cached_property
    def files(self) -> AsyncFiles:
        """What batches read and write."""
        from headpond.client.files import AsyncFiles  # noqa: PLC0415

        return AsyncFiles(self._transport)

    @cached_property
    def images(self) -> AsyncImages:
        """Pictures from text, and from pictures."""
        from headpond_workloads.diffusion.client import AsyncImages  # noqa: PLC0415

        return AsyncImages(self._transport)

    @cached_property
    def models(self) -> AsyncModels:
        """The models that can be asked for."""
        from headpond.client.catalogue import AsyncModels  # noqa: PLC0415

        return AsyncModels(self._transport)

    @cached_property
    def realtime(self) -> AsyncRealtime:
        """Speech that is transcribed while it is spoken."""
        from headpond_workloads.speech.client_realtime import AsyncRealtime  # noqa: PLC0415

        return AsyncRealtime(self._transport)

    @cached_property
    def responses(self) -> AsyncResponses:
        """Answers as OpenAI's responses."""
        from headpond_workloads.generation.client_responses import AsyncResponses  # noqa: PLC0415

        return AsyncResponses(self._transport)

    @cached_property
    def transcriptions(self) -> AsyncTranscriptions:
        """Text of files of speech."""
        from headpond_workloads.speech.client import AsyncTranscriptions  # noqa: PLC0415

        return AsyncTranscriptions(self._transport)

    @cached_property
    def usage(self) -> AsyncUsage:
        """What calls came to, by tenant."""
        from headpond.client.async_usage import AsyncUsage  # noqa: PLC0415

        return AsyncUsage(self._transport)

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
        options = CallOptions(
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            max_retries=max_retries,
            extra_headers=headers,
        )
        client = object.__new__(AsyncClient)
        client._transport = self._transport.with_config(self._transport.config.for_call(options))
        return client

    async def workloads(self) -> tuple[Workload, ...]:
        """Return the workloads the server knows, as they declare themselves."""
        from headpond.client.catalogue import WORKLOADS_PATH, WorkloadList  # noqa: PLC0415

        return (await self._transport.get(WORKLOADS_PATH, WorkloadList)).data

    async def rerank(self, **params: Unpack[RerankParams]) -> Ranking:
        """Return documents by how well they answer a query, the best first.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        from headpond_workloads.reranking import schema  # noqa: PLC0415

        body, options = encode(params, schema.RerankRequest), options_of(params)
        return await self._transport.post(schema.RERANK_PATH, body, schema.Ranking, options=options)

    async def tokenize(self, **params: Unpack[TokenizeParams]) -> Tokenization:
        """Return the tokens of a prompt or a conversation.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        from headpond_workloads.generation import schema_tokenize as schema  # noqa: PLC0415

        body, options = encode(params, schema.TokenizeRequest), options_of(params)
        return await self._transport.post(
            schema.TOKENIZE_PATH, body, schema.Tokenization, options=options
        )

    async def detokenize(self, **params: Unpack[DetokenizeParams]) -> Detokenization:
        """Return the text of tokens.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        from headpond_workloads.generation import schema_tokenize as schema  # noqa: PLC0415

        body, options = encode(params, schema.DetokenizeRequest), options_of(params)
        return await self._transport.post(
            schema.DETOKENIZE_PATH, body, schema.Detokenization, options=options
        )
