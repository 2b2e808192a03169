"""TEI's dialect of embedding: `/embed`, `/embed_all`, `/similarity` and `/info`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headpond.dialect import Ask, Exchange, Heading, ItemEvent, Raw
from headpond.units import Work
from headpond_workloads.embedding.dialect_answer import embeddings, json_list, raw_json
from headpond_workloads.embedding.items import Description, EmbedItem, Truncation
from headpond_workloads.embedding.schema_tei import (
    SimilarityParameters,
    SimilarityRequest,
    TeiEmbedRequest,
)
from headpond_workloads.embedding.schema_texts import TextSource, sources
from headpond_workloads.embedding.vector_json import row_json
from headpond_workloads.embedding.vectors import dot, rows
from headpond_workloads.encoders.errors import EmptyInput
from headpond_workloads.encoders.items import Described
from headpond_workloads.encoders.schema_fields import MAX_INPUTS
from headpond_workloads.encoders.schema_tei import ModelType, Pooling


class TeiEmbedExchange(Exchange):
    """Some texts, and the vector of each."""

    def __init__(self, request: TeiEmbedRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._params: list[str] = []

    def ask(self) -> Ask:
        """Return one item for each text; vectors get length 1 unless that is not wanted.

        Raises:
            EmptyInput: A text, or the list of them, is empty.
            TooManyInputs: There are more than a call may hold.
        """
        request = self._request
        found = sources(request.inputs, "inputs")
        self._params = [param for param, _ in found]
        like = replace(_like(request), normalize=request.normalize is not False)
        items = _items(found, replace(like, dimensions=request.dimensions))
        return Ask(model=request.model, items=items)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return a list of vectors, also for a single text.

        Raises:
            HeadpondError: A text failed.
        """
        found = embeddings(events, self._params)
        return raw_json(json_list(row_json(embedding.vectors) for embedding in found))


class TeiEmbedAllExchange(Exchange):
    """Some texts, and for each the vectors of its tokens."""

    def __init__(self, request: TeiEmbedRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._params: list[str] = []

    def ask(self) -> Ask:
        """Return one item for each text; vectors are the model's own unless length 1 is wanted.

        Raises:
            EmptyInput: A text, or the list of them, is empty.
            TooManyInputs: There are more than a call may hold.
        """
        request = self._request
        found = sources(request.inputs, "inputs")
        self._params = [param for param, _ in found]
        like = replace(_like(request), normalize=bool(request.normalize), each_token=True)
        items = _items(found, replace(like, dimensions=request.dimensions))
        return Ask(model=request.model, items=items)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return a list of lists of vectors.

        Raises:
            HeadpondError: A text failed.
        """
        return raw_json(
            json_list(
                json_list(map(row_json, rows(embedding.vectors, embedding.dimensions)))
                for embedding in embeddings(events, self._params)
            )
        )


class SimilarityExchange(Exchange):
    """A text, others, and how like it each of these is."""

    def __init__(self, request: SimilarityRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._params: list[str] = []

    def ask(self) -> Ask:
        """Return an item for the source, then one for each sentence.

        Raises:
            EmptyInput: A text, or the list of them, is empty.
            TooManyInputs: There are more than a call may hold.
        """
        given = self._request.inputs
        if not given.source_sentence:
            raise EmptyInput("must not be empty", param="inputs.source_sentence")
        others = sources(given.sentences, "inputs.sentences", most=MAX_INPUTS - 1)
        found = [("inputs.source_sentence", given.source_sentence), *others]
        self._params = [param for param, _ in found]
        chosen = self._request.parameters or SimilarityParameters()
        items = _items(found, replace(_like(chosen), normalize=True))
        return Ask(model=self._request.model, items=items)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return the cosine of each sentence with the source.

        Raises:
            HeadpondError: A text failed.
        """
        source, *others = embeddings(events, self._params)
        # Vectors of length 1 in float32 are of length 1 but for rounding.
        cosines = (max(-1.0, min(1.0, dot(source.vectors, other.vectors))) for other in others)
        return raw_json(json_list(f"{cosine:.9g}" for cosine in cosines))


def model_type(told: Described) -> ModelType:
    """Return what a model does.

    Raises:
        TypeError: It is described as another kind.
    """
    if not isinstance(told, Description):
        raise TypeError(f"embedding is described by no {type(told).__name__}")
    return ModelType(embedding=Pooling(pooling=told.pooling))


def _like(chosen: TeiEmbedRequest | SimilarityParameters) -> EmbedItem:
    """Return an item without a text, as a request's parameters want all of them."""
    truncation = Truncation.NONE
    if chosen.truncate:
        truncation = Truncation.START if chosen.truncation_direction == "Left" else Truncation.END
    return EmbedItem(text="", truncation=truncation, prompt=chosen.prompt_name)


def _items(found: Sequence[tuple[str, TextSource]], like: EmbedItem) -> tuple[EmbedItem, ...]:
    """Return an item for each text behind its field."""
    return tuple(replace(like, text=text, param=param) for param, text in found)
