"""What Cohere's routes have in common: the form of their errors."""

from __future__ import annotations

from headpond.dialect import ErrorAnswer
from headpond.errors import HeadpondError
from headpond_workloads.encoders.errors import described


def cohere_error(error: HeadpondError) -> ErrorAnswer:
    """Write an error as Cohere does: a message, which names the field at fault."""
    return ErrorAnswer(status=error.status, body={"message": described(error)})
