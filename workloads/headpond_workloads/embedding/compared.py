"""What two versions of an embedding model agree on: the vectors."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.engine import Json
from headpond_workloads.embedding.items import Embedding
from headpond_workloads.embedding.vectors import numbers


def compared(outputs: Sequence[object]) -> Json:
    """Return the values of one text's vectors."""
    vectors = (each.vectors for each in outputs if isinstance(each, Embedding))
    return [list(numbers(content)) for content in vectors]
