"""What the dialects of texts refuse, and how they name it.

HeadpondError
└── InvalidRequest
    ├── EmptyInput          400
    └── TooManyInputs       400
"""

from __future__ import annotations

from headpond.errors import InvalidRequest
from headpond_workloads.encoders.schema_fields import MAX_INPUTS


class EmptyInput(InvalidRequest):
    """A text, or a list of texts, is empty."""


class TooManyInputs(InvalidRequest):
    """The request holds more texts than one call may."""


def check_count(count: int, param: str, most: int = MAX_INPUTS) -> None:
    """Refuse no texts at all, and too many.

    Args:
        count: How many there are.
        param: The request's field.
        most: The most there may be.

    Raises:
        EmptyInput: There are none.
        TooManyInputs: With both numbers.
    """
    if count == 0:
        raise EmptyInput("must not be empty", param=param)
    if count > most:
        raise TooManyInputs(f"holds {count} texts, and {most} are allowed", param=param)
