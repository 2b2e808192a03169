"""What two versions of a recogniser agree on: what was said."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.engine import Json
from headpond_workloads.speech.items import Final


def compared(outputs: Sequence[object]) -> Json:
    """Return the final text of each utterance of a file."""
    return [each.text for each in outputs if isinstance(each, Final)]
