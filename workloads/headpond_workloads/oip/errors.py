"""Errors as the protocol writes them: one text, which names the field."""

from __future__ import annotations

from headpond.dialect import ErrorAnswer
from headpond.errors import HeadpondError
from headpond_workloads.encoders.errors import described

_MAX_TEXT = 2000


def oip_error(error: HeadpondError) -> ErrorAnswer:
    """Write an error as `{"error": "..."}`, with its own status."""
    return ErrorAnswer(status=error.status, body={"error": described(error)[:_MAX_TEXT]})
