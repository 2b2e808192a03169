"""What two versions of a classifier agree on: the classes, best first, and their scores."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.engine import Json
from headpond_workloads.vision.items import Classification


def compared(outputs: Sequence[object]) -> Json:
    """Return the labels and scores of one image."""
    found = (each for each in outputs if isinstance(each, Classification))
    return [[[each.label, each.score] for each in answer.classes] for answer in found]
