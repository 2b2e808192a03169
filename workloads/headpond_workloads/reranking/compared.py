"""What two versions of a reranker agree on: the scores."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.engine import Json
from headpond_workloads.reranking.items import Score


def compared(outputs: Sequence[object]) -> Json:
    """Return the scores of one pair."""
    return [list(each.scores) for each in outputs if isinstance(each, Score)]
