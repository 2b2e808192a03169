"""Cohere's dialect of embedding: `POST /v2/embed`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pydantic_core import to_json

from headpond.dialect import Ask, ErrorAnswer, Exchange, Heading, ItemEvent, Raw
from headpond.errors import HeadpondError, InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.embedding.dialect_answer import (
    embeddings,
    json_list,
    json_object,
    raw_json,
    tokens,
)
from headpond_workloads.embedding.items import EmbedItem, Truncation
from headpond_workloads.embedding.quantization import binary, int8, ubinary, uint8
from headpond_workloads.embedding.schema_cohere import EmbedContent, EmbeddingType, EmbedRequest
from headpond_workloads.embedding.schema_texts import sources
from headpond_workloads.embedding.vector_json import row_json
from headpond_workloads.embedding.vectors import encode
from headpond_workloads.encoders.dialect_cohere import cohere_error
from headpond_workloads.encoders.schema_cohere import BilledUnits, Meta

_TRUNCATIONS = {
    None: Truncation.END,
    "NONE": Truncation.NONE,
    "START": Truncation.START,
    "END": Truncation.END,
}
_PROMPTS: Mapping[str | None, tuple[str, ...]] = {
    None: (),
    "search_query": ("search_query", "query"),
    "search_document": ("search_document", "document", "passage"),
    "classification": ("classification",),
    "clustering": ("clustering",),
}
"""Names of a bundle's prompts that stand for an `input_type`, the likeliest first."""


def _integers(quantize: Callable[[bytes], list[int]]) -> Callable[[bytes], str]:
    return lambda row: str(quantize(row)).replace(" ", "")


_WRITERS: Mapping[EmbeddingType, Callable[[bytes], str]] = {
    "float": row_json,
    "int8": _integers(int8),
    "uint8": _integers(uint8),
    "binary": _integers(binary),
    "ubinary": _integers(ubinary),
    "base64": lambda row: f'"{encode(row)}"',
}


class EmbedExchange(Exchange):
    """Some texts, and the vector of each in some forms."""

    def __init__(self, request: EmbedRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._params: list[str] = []

    def ask(self) -> Ask:
        """Return one item for each text.

        Raises:
            InvalidRequest: There is not exactly one of `texts` and `inputs`, a text is empty, or
                `store` does not name each text once.
            UnsupportedParameter: Images are among the inputs.
        """
        request = self._request
        if request.images is not None or request.input_type == "image":
            param = "input_type" if request.images is None else "images"
            raise UnsupportedParameter("This model embeds texts, not images.", param=param)
        found = sources(*self._texts())
        self._params = [param for param, _ in found]
        items = tuple(
            EmbedItem(
                text=text,
                truncation=_TRUNCATIONS[request.truncate],
                max_tokens=request.max_tokens,
                preferred_prompts=_PROMPTS[request.input_type],
                dimensions=request.output_dimension,
                param=param,
            )
            for param, text in found
        )
        store = None if request.store is None else request.store.placement(len(items))
        return Ask(model=request.model, items=items, store=store)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return an `EmbedResponse`.

        Raises:
            HeadpondError: A text failed.
        """
        found = embeddings(events, self._params)
        types = dict.fromkeys(self._request.embedding_types or ("float",))
        by_type: dict[str, str] = {
            name: json_list(_WRITERS[name](embedding.vectors) for embedding in found)
            for name in types
        }
        meta = Meta(billed_units=BilledUnits(input_tokens=tokens(found)))
        fields = {
            "response_type": '"embeddings_by_type"',
            "id": to_json(heading.request_id).decode(),
            "embeddings": json_object(by_type),
            "texts": to_json(self._request.texts or ()).decode(),
            "meta": meta.model_dump_json(exclude_none=True),
        }
        return raw_json(json_object(fields))

    def _texts(self) -> tuple[tuple[str, ...], str]:
        """Return the texts, and the field they came in."""
        request = self._request
        if request.inputs is None:
            if request.texts is None:
                raise InvalidRequest("give texts or inputs", param="texts")
            return request.texts, "texts"
        if request.texts is not None:
            raise InvalidRequest("texts and inputs cannot both be set", param="inputs")
        return tuple(
            _text(each, f"inputs.{at}") for at, each in enumerate(request.inputs)
        ), "inputs"


def embed_error(error: HeadpondError) -> ErrorAnswer:
    """Write an error as Cohere does, by the names of Cohere's own fields."""
    if error.param == "dimensions":
        error.param = "output_dimension"
    return cohere_error(error)


def _text(entry: EmbedContent, param: str) -> str:
    for at, part in enumerate(entry.content):
        if part.type != "text":
            raise UnsupportedParameter(
                "This model embeds texts, not images.", param=f"{param}.content.{at}"
            )
    return "\n".join(part.text or "" for part in entry.content)
