"""The client: every workload's resources over one transport."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import httpx2

from headpond.client.config import DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_S, ClientConfig
from headpond.client.options import CallOptions
from headpond.client.transport import Transport
from headpond.client.wire import encode, options_of
from headpond_workloads.async_client import AsyncClient

# What a program uses of the workloads is loaded when it does: their types take their time.
if TYPE_CHECKING:
    from headpond.client.batches import Batches
    from headpond.client.catalogue import Models, Workload
    from headpond.client.files import Files
    from headpond.client.usage import Usage
    from headpond_workloads.diffusion.client import Images
    from headpond_workloads.embedding.client import Embeddings
    from headpond_workloads.generation.client import Chat, Completions
    from headpond_workloads.generation.client_responses import Responses
    from headpond_workloads.generation.params import DetokenizeParams, TokenizeParams
    from headpond_workloads.generation.schema_tokenize import Detokenization, Tokenization
    from headpond_workloads.reranking.client_params import RerankParams
    from headpond_workloads.reranking.schema import Ranking
    from headpond_workloads.speech.client import Transcriptions
    from headpond_workloads.speech.client_realtime import Realtime
    from headpond_workloads.vision.client import Classifications

__all__ = ["AsyncClient", "Client"]


class Client:
    """Talks to a Headpond server, or to any other that speaks the same dialects.

    >>> with Client() as client:  # doctest: +SKIP
    ...     answer = client.chat.completions.create(
    ...         model="chat", messages=[{"role": "user", "content": "Hello"}]
    ...     )
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
        self._transport = Transport(config, http_client)

    @cached_property
    def batches(self) -> Batches:
        """Files of requests that are answered in the background."""
        from headpond.client.batches import Batches  # noqa: PLC0415

        return Batches(self._transport)

    @cached_property
    def chat(self) -> Chat:
        """Conversations."""
        from headpond_workloads.generation.client import Chat  # noqa: PLC0415

        return Chat(self._transport)

    @cached_property
    def classifications(self) -> Classifications:
        """Classes of images."""
        from headpond_workloads.vision.client import Classifications  # noqa: PLC0415

        return Classifications(self._transport)

    @cached_property
    def completions(self) -> Completions:
        """Texts that go on."""
        from headpond_workloads.generation.client import Completions  # noqa: PLC0415

        return Completions(self._transport)

    @cached_property
    def embeddings(self) -> Embeddings:
        """Vectors of texts."""
        from headpond_workloads.embedding.client import Embeddings  # noqa: PLC0415

        return Embeddings(self._transport)

    @cached_property
    def files(self) -> Files:
        """What batches read and write."""
        from headpond.client.files import Files  # noqa: PLC0415

        return Files(self._transport)

    @cached_property
    def images(self) -> Images:
        """Pictures from text, and from pictures."""
        from headpond_workloads.diffusion.client import Images  # noqa: PLC0415

        return Images(self._transport)

    @cached_property
    def models(self) -> Models:
        """The models that can be asked for."""
        from headpond.client.catalogue import Models  # noqa: PLC0415

        return Models(self._transport)

    @cached_property
    def realtime(self) -> Realtime:
        """Speech that is transcribed while it is spoken."""
        from headpond_workloads.speech.client_realtime import Realtime  # noqa: PLC0415

        return Realtime(self._transport)

    @cached_property
    def responses(self) -> Responses:
        """Answers as OpenAI's responses."""
        from headpond_workloads.generation.client_responses import Responses  # noqa: PLC0415

        return Responses(self._transport)

    @cached_property
    def transcriptions(self) -> Transcriptions:
        """Text of files of speech."""
        from headpond_workloads.speech.client import Transcriptions  # noqa: PLC0415

        return Transcriptions(self._transport)

    @cached_property
    def usage(self) -> Usage:
        """What calls came to, by tenant."""
        from headpond.client.usage import Usage  # noqa: PLC0415

        return Usage(self._transport)

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
        options = CallOptions(
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            max_retries=max_retries,
            extra_headers=headers,
        )
        client = object.__new__(Client)
        client._transport = self._transport.with_config(self._transport.config.for_call(options))
        return client

    def workloads(self) -> tuple[Workload, ...]:
        """Return the workloads the server knows, as they declare themselves."""
        from headpond.client.catalogue import WORKLOADS_PATH, WorkloadList  # noqa: PLC0415

        return self._transport.get(WORKLOADS_PATH, WorkloadList).data

    def rerank(self, **params: Unpack[RerankParams]) -> Ranking:
        """Return documents by how well they answer a query, the best first.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        from headpond_workloads.reranking import schema  # noqa: PLC0415

        body, options = encode(params, schema.RerankRequest), options_of(params)
        return self._transport.post(schema.RERANK_PATH, body, schema.Ranking, options=options)

    def tokenize(self, **params: Unpack[TokenizeParams]) -> Tokenization:
        """Return the tokens of a prompt or a conversation.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        from headpond_workloads.generation import schema_tokenize as schema  # noqa: PLC0415

        body, options = encode(params, schema.TokenizeRequest), options_of(params)
        return self._transport.post(
            schema.TOKENIZE_PATH, body, schema.Tokenization, options=options
        )

    def detokenize(self, **params: Unpack[DetokenizeParams]) -> Detokenization:
        """Return the text of tokens.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        from headpond_workloads.generation import schema_tokenize as schema  # noqa: PLC0415

        body, options = encode(params, schema.DetokenizeRequest), options_of(params)
        return self._transport.post(
            schema.DETOKENIZE_PATH, body, schema.Detokenization, options=options
        )
