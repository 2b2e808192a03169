"""Scores of pairs, and the order that follows from them: what every dialect needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from headpond.call import Failed, Output
from headpond.dialect import ItemEvent
from headpond.errors import EngineFailed, InvalidRequest
from headpond_workloads.encoders.errors import EmptyInput, check_count
from headpond_workloads.reranking.items import PairItem, Score


def pairs(
    query: str,
    documents: Sequence[str],
    param: str,
    *,
    max_document_tokens: int | None = None,
    truncate: bool = True,
    keep_start: bool = True,
) -> tuple[PairItem, ...]:
    """Return an item for each document.

    Args:
        query: What they shall answer.
        documents: In the order of the request.
        param: Their field.
        max_document_tokens: As in `PairItem`.
        truncate: As in `PairItem`.
        keep_start: As in `PairItem`.

    Raises:
        EmptyInput: The query, or the list of documents, is empty.
        TooManyInputs: There are more than a call may hold.
    """
    if not query:
        raise EmptyInput("must not be empty", param="query")
    check_count(len(documents), param)
    return tuple(
        PairItem(
            query=query,
            document=document,
            max_document_tokens=max_document_tokens,
            truncate=truncate,
            keep_start=keep_start,
            param=f"{param}.{at}",
        )
        for at, document in enumerate(documents)
    )


def scores(events: Sequence[ItemEvent], items: Sequence[PairItem]) -> list[Score]:
    """Return the score of each item, in the order of the request.

    Raises:
        HeadpondError: An item failed; it names the item's field.
    """
    found = {
        event.item: _score(event.payload, items[event.item].param)
        for event in outputs(events, items)
        if event.item < len(items)
    }
    return [found[at] for at in range(len(items))]


def outputs(events: Sequence[ItemEvent], items: Sequence[PairItem]) -> Iterator[Output]:
    """Yield what items gave; there may be others behind the pairs.

    Raises:
        HeadpondError: An item failed; a pair's error names its field.
    """
    for event in events:
        if isinstance(event, Failed):
            known = event.item < len(items)
            raise event.error.named(items[event.item].param) if known else event.error
        if isinstance(event, Output):
            yield event


def relevances(found: Sequence[Score], *, raw: bool = False) -> list[float]:
    """Return one number for each document.

    Args:
        found: In the order of the documents.
        raw: Whether the model's own numbers are wanted, before its activation.

    Raises:
        InvalidRequest: The model tells labels apart, so it has no such number.
    """
    for score in found:
        if len(score.scores) != 1:
            raise InvalidRequest(
                f"This model tells {len(score.scores)} labels apart; it does not rank.",
                param="model",
            )
    return [short(score.logits[0] if raw else score.scores[0]) for score in found]


def ranked(relevance: Sequence[float], top_n: int | None = None) -> list[int]:
    """Return indices, the most relevant first; among equals the order stays.

    Args:
        relevance: By index.
        top_n: How many to return; all, when there are no more.
    """
    return sorted(range(len(relevance)), key=lambda at: -relevance[at])[:top_n]


def short(number: float) -> float:
    """Return a float32 with as many digits as it needs: JSON shows no more."""
    return float(f"{number:.9g}")


def _score(payload: object, param: str) -> Score:
    if not isinstance(payload, Score):
        raise TypeError(f"reranking gives Score, not {type(payload).__name__}")
    if not all(map(math.isfinite, (*payload.logits, *payload.scores))):
        raise EngineFailed("the score is not finite", param=param)
    return payload
