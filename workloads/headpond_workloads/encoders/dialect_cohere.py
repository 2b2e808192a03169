"""What Cohere's routes have in common: the form of their errors."""

from __future__ import annotations

from headpond.dialect import ErrorAnswer, Unserved
from headpond.errors import HeadpondError


def cohere_error(error: HeadpondError) -> ErrorAnswer:
    """Write an error as Cohere does: a message, which names the field at fault."""
    return ErrorAnswer(status=error.status, body={"message": error.described()})


cohere_unserved = tuple(
    Unserved(f"/v2/{name}", cohere_error) for name in ("embed", "rerank", "chat", "embed-jobs/")
)
"""What Cohere's clients ask for below `/v2`, which is the Open Inference Protocol's otherwise."""
