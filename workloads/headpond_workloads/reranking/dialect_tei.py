"""TEI's dialect of reranking: `/rerank`, `/predict` and `/info`."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.dialect import Ask, Exchange, Heading, ItemEvent, Raw
from headpond.units import Work
from headpond_workloads.encoders.errors import EmptyInput, check_count
from headpond_workloads.encoders.items import Described, DescribeItem
from headpond_workloads.encoders.schema_fields import MAX_INPUTS
from headpond_workloads.encoders.schema_tei import Labels, ModelType
from headpond_workloads.reranking.dialect_ranking import (
    outputs,
    pairs,
    ranked,
    relevances,
    scores,
    short,
)
from headpond_workloads.reranking.items import Description, PairItem, Score
from headpond_workloads.reranking.schema_tei import (
    Prediction,
    Predictions,
    PredictRequest,
    Rank,
    Sequences,
    TeiRanking,
    TeiRerankRequest,
)


class TeiRerankExchange(Exchange):
    """A query, and texts in the order in which they answer it."""

    def __init__(self, request: TeiRerankRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._items: tuple[PairItem, ...] = ()

    def ask(self) -> Ask:
        """Return one item for each text.

        Raises:
            EmptyInput: The query, or the list of texts, is empty.
            TooManyInputs: There are more than a call may hold.
        """
        request = self._request
        self._items = pairs(
            request.query,
            request.texts,
            "texts",
            truncate=bool(request.truncate),
            keep_start=request.truncation_direction != "Left",
        )
        return Ask(model=request.model, items=self._items)

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Raw:
        """Return a `TeiRanking`.

        Raises:
            HeadpondError: A text failed, or the model does not rank.
        """
        request = self._request
        relevance = relevances(scores(events, self._items), raw=bool(request.raw_scores))
        ranking = TeiRanking(
            [
                Rank(
                    index=at,
                    text=request.texts[at] if request.return_text else None,
                    score=relevance[at],
                )
                for at in ranked(relevance)
            ]
        )
        content = ranking.model_dump_json(exclude_none=True).encode()
        return Raw(content=content, media_type="application/json")


class PredictExchange(Exchange):
    """Some texts or pairs, and how well each label fits each."""

    def __init__(self, request: PredictRequest) -> None:
        """Read a request of the right types."""
        self._request = request
        self._items: tuple[PairItem, ...] = ()

    def ask(self) -> Ask:
        """Return one item for each sequence, and a question for the names of the labels.

        Raises:
            EmptyInput: A text is empty.
            TooManyInputs: There are more than a call may hold.
        """
        request = self._request
        found = _sequences(request.inputs)
        check_count(len(found), "inputs", MAX_INPUTS - 1)
        for param, texts in found:
            if not texts or not texts[0]:
                raise EmptyInput("must not be empty", param=param)
        self._items = tuple(
            PairItem(
                query=texts[0],
                document=texts[1] if len(texts) > 1 else None,
                truncate=bool(request.truncate),
                keep_start=request.truncation_direction != "Left",
                param=param,
            )
            for param, texts in found
        )
        return Ask(model=request.model, items=(*self._items, DescribeItem()))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> Predictions:
        """Return the labels of the sequence, or of each sequence of a batch.

        Raises:
            HeadpondError: A sequence failed.
        """
        names = _description(events, self._items).labels
        found = [self._predictions(score, names) for score in scores(events, self._items)]
        single = self._items[0].param == "inputs"
        return Predictions(found[0] if single else found)

    def _predictions(self, score: Score, names: Sequence[str]) -> list[Prediction]:
        numbers = score.logits if self._request.raw_scores else score.scores
        return [Prediction(score=short(numbers[at]), label=names[at]) for at in ranked(numbers)]


def model_type(told: Described) -> ModelType:
    """Return what a model does.

    Raises:
        TypeError: It is described as another kind.
    """
    if not isinstance(told, Description):
        raise TypeError(f"reranking is described by no {type(told).__name__}")
    labels = Labels.of(told.labels)
    ranks = len(told.labels) == 1
    return ModelType(reranker=labels) if ranks else ModelType(classifier=labels)


def _sequences(inputs: Sequences) -> list[tuple[str, tuple[str, ...]]]:
    """Return each sequence of one or two texts behind the field it came from."""
    if isinstance(inputs, str):
        return [("inputs", (inputs,))]
    flat = tuple(entry for entry in inputs if isinstance(entry, str))
    if flat:
        return [("inputs", flat)]
    return [(f"inputs.{at}", entry) for at, entry in enumerate(inputs) if isinstance(entry, tuple)]


def _description(events: Sequence[ItemEvent], items: Sequence[PairItem]) -> Description:
    for output in outputs(events, items):
        if isinstance(output.payload, Description):
            return output.payload
    raise TypeError("a model describes itself with a Description")
