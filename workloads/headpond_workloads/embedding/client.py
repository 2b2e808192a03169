"""The client's resource for `POST /v1/embeddings`."""

from __future__ import annotations

from typing import Unpack

from headpond.client.async_transport import AsyncTransport
from headpond.client.transport import Transport
from headpond.client.wire import encode, options_of
from headpond_workloads.embedding.client_params import EmbeddingParams
from headpond_workloads.embedding.schema import EMBEDDINGS_PATH, EmbeddingList, EmbeddingRequest


class Embeddings:
    """`POST /v1/embeddings`."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    def create(self, **params: Unpack[EmbeddingParams]) -> EmbeddingList:
        """Return the vectors of texts; each one's `vector` is numbers in either encoding.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, EmbeddingRequest)
        return self._transport.post(
            EMBEDDINGS_PATH, body, EmbeddingList, options=options_of(params)
        )


class AsyncEmbeddings:
    """`POST /v1/embeddings`."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    async def create(self, **params: Unpack[EmbeddingParams]) -> EmbeddingList:
        """Return the vectors of texts; each one's `vector` is numbers in either encoding.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        body = encode(params, EmbeddingRequest)
        return await self._transport.post(
            EMBEDDINGS_PATH, body, EmbeddingList, options=options_of(params)
        )
