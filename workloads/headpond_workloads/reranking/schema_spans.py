"""Cohere's `relevant_spans`: which parts of documents matter. It is refused."""

from __future__ import annotations

from pydantic import JsonValue

from headpond.errors import UnsupportedParameter

SPANS_DESCRIPTION = 'Not supported: only null, false and `{"mode": "disabled"}` are taken.'


def refuse_spans(asked: JsonValue) -> None:
    """Refuse all but what asks for none.

    Raises:
        UnsupportedParameter: Spans are asked for, in whatever form.
    """
    if asked is None or asked is False or asked == {"mode": "disabled"}:
        return
    raise UnsupportedParameter("relevant_spans is not supported", param="relevant_spans")
