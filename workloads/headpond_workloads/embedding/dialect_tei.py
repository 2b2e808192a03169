"""TEI's dialect of embedding: `/embed`, `/embed_all`, `/similarity` and `/info`."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.call import Failed, Output
from headpond.dialect import Ask, Heading, Incoming, ItemEvent, Raw, StreamWriter
from headpond.errors import UnsupportedParameter
from headpond.units import Work
from headpond_workloads.embedding.dialect_answer import embeddings, json_list, raw_json
from headpond_workloads.embedding.items import DescribeItem, Description, EmbedItem, Truncation
from headpond_workloads.embedding.schema_tei import (
    SimilarityParameters,
    SimilarityRequest,
    TeiEmbedAllRequest,
    TeiEmbedRequest,
)
from headpond_workloads.embedding.schema_texts import sources
from headpond_workloads.embedding.vectors import dot, row_json, rows
from headpond_workloads.encoders.dialect_tei import info_answer
from headpond_workloads.encoders.errors import EmptyInput
from headpond_workloads.encoders.schema_fields import MAX_INPUTS
from headpond_workloads.encoders.schema_tei import Direction, ModelType, Pooling


class TeiEmbedExchange:
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
        items = tuple(
            EmbedItem(
                text=text,
                truncation=_truncation(request.truncate, request.truncation_direction),
                prompt=request.prompt_name,
                dimensions=request.dimensions,
                normalize=request.normalize is not False,
                param=param,
            )
            for param, text in found
        )
        return Ask(model=request.model, items=items)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return a list of vectors, also for a single text.

        Raises:
            HeadpondError: A text failed.
        """
        found = embeddings(events, self._params)
        return raw_json(json_list(row_json(embedding.vectors) for embedding in found))

    def stream(self, heading: Heading) -> StreamWriter:
        """Refuse: the route does not stream."""
        raise _no_stream()


class TeiEmbedAllExchange:
    """Some texts, and for each the vectors of its tokens as the model gives them."""

    def __init__(self, request: TeiEmbedAllRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._params: list[str] = []

    def ask(self) -> Ask:
        """Return one item for each text.

        Raises:
            EmptyInput: A text, or the list of them, is empty.
            TooManyInputs: There are more than a call may hold.
        """
        request = self._request
        found = sources(request.inputs, "inputs")
        self._params = [param for param, _ in found]
        items = tuple(
            EmbedItem(
                text=text,
                truncation=_truncation(request.truncate, request.truncation_direction),
                prompt=request.prompt_name,
                normalize=False,
                each_token=True,
                param=param,
            )
            for param, text in found
        )
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

    def stream(self, heading: Heading) -> StreamWriter:
        """Refuse: the route does not stream."""
        raise _no_stream()


class SimilarityExchange:
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
        items = tuple(
            EmbedItem(
                text=text,
                truncation=_truncation(chosen.truncate, chosen.truncation_direction),
                prompt=chosen.prompt_name,
                normalize=True,
                param=param,
            )
            for param, text in found
        )
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

    def stream(self, heading: Heading) -> StreamWriter:
        """Refuse: the route does not stream."""
        raise _no_stream()


class EmbeddingInfoExchange:
    """What the model is."""

    def __init__(self, incoming: Incoming) -> None:
        """Read a request: it says nothing."""

    def ask(self) -> Ask:
        """Ask for the description of the only model."""
        return Ask(model=None, items=(DescribeItem(),))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return an `Info`.

        Raises:
            HeadpondError: The engine failed.
        """
        description = _description(events)
        return info_answer(
            model=description.model,
            digest=description.digest,
            dtype=description.dtype,
            kind=ModelType(embedding=Pooling(pooling=description.pooling)),
            max_tokens=description.max_tokens,
            max_batch_tokens=description.max_batch_tokens,
        )

    def stream(self, heading: Heading) -> StreamWriter:
        """Refuse: the route does not stream."""
        raise _no_stream()


def _truncation(truncate: bool | None, direction: Direction | None) -> Truncation:
    if not truncate:
        return Truncation.NONE
    return Truncation.START if direction == "Left" else Truncation.END


def _description(events: Sequence[ItemEvent]) -> Description:
    for event in events:
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Output) and isinstance(event.payload, Description):
            return event.payload
    raise TypeError("a model describes itself with a Description")


def _no_stream() -> UnsupportedParameter:
    return UnsupportedParameter("this route does not stream", param="stream")
