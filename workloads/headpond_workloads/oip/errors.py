"""Errors as the protocol writes them: one text, which names the field."""

from __future__ import annotations

from headpond.dialect import ErrorAnswer, Unserved
from headpond.errors import HeadpondError

_MAX_TEXT = 2000


def oip_error(error: HeadpondError) -> ErrorAnswer:
    """Write an error as `{"error": "..."}`, with its own status."""
    return ErrorAnswer(status=error.status, body={"error": error.described()[:_MAX_TEXT]})


oip_unserved = (Unserved("/v2", oip_error), Unserved("/v2/", oip_error))
"""What the protocol, and Triton's extensions of it, have besides."""
