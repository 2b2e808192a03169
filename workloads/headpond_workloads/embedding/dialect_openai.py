"""OpenAI's dialect of embedding: `POST /v1/embeddings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic_core import to_json

from headpond.dialect import Ask, Exchange, Heading, ItemEvent, Raw
from headpond.units import Work
from headpond_workloads.embedding.dialect_answer import (
    embeddings,
    json_list,
    json_object,
    raw_json,
    tokens,
)
from headpond_workloads.embedding.items import EmbedItem, Truncation
from headpond_workloads.embedding.schema import EmbeddingRequest, EmbeddingUsage
from headpond_workloads.embedding.schema_texts import sources
from headpond_workloads.embedding.vector_json import row_json
from headpond_workloads.embedding.vectors import encode

_PROMPTS: Mapping[str | None, tuple[str, ...]] = {
    None: (),
    "query": ("query", "search_query"),
    "passage": ("passage", "document", "search_document"),
    "document": ("document", "passage", "search_document"),
}
"""Names of a bundle's prompts that stand for an `input_type`, the likeliest first."""


class EmbeddingExchange(Exchange):
    """Some texts, and the vector of each."""

    def __init__(self, request: EmbeddingRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._params: list[str] = []

    def ask(self) -> Ask:
        """Return one item for each text; one that is too long is refused unless a cut is asked for.

        Raises:
            EmptyInput: A text, or the list of them, is empty.
            TooManyInputs: There are more than a call may hold.
            InvalidRequest: `store` does not name each text once.
        """
        request = self._request
        found = sources(request.input, "input")
        self._params = [param for param, _ in found]
        like = _like(request)
        items = tuple(replace(like, text=text, param=param) for param, text in found)
        store = None if request.store is None else request.store.placement(len(items))
        return Ask(model=request.model, items=items, store=store)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return an `EmbeddingList`.

        Raises:
            HeadpondError: A text failed.
        """
        found = embeddings(events, self._params)
        count = tokens(found)
        usage = EmbeddingUsage(prompt_tokens=count, total_tokens=count)
        data = (
            json_object(
                {
                    "object": '"embedding"',
                    "index": str(index),
                    "embedding": self._vector(embedding.vectors),
                }
            )
            for index, embedding in enumerate(found)
        )
        fields = {
            "object": '"list"',
            "data": json_list(data),
            "model": to_json(heading.model).decode(),
            "usage": usage.model_dump_json(),
        }
        return raw_json(json_object(fields))

    def _vector(self, vector: bytes) -> str:
        if self._request.encoding_format == "base64":
            return f'"{encode(vector)}"'
        return row_json(vector)


def _like(request: EmbeddingRequest) -> EmbedItem:
    """Return an item without a text, as the request wants all of them."""
    most = request.truncate_prompt_tokens
    truncation = Truncation.NONE if most is None else Truncation.END
    if request.truncate is not None:
        truncation = Truncation[request.truncate]
    return EmbedItem(
        text="",
        truncation=truncation,
        max_tokens=None if most == -1 else most,
        max_tokens_param="truncate_prompt_tokens",
        prompt=request.prompt_name,
        preferred_prompts=_PROMPTS[request.input_type],
        dimensions=request.dimensions,
        normalize=request.normalize,
    )
