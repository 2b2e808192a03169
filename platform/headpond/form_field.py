"""A field of a form that is no text in JSON: its text is read as JSON would have it."""

from __future__ import annotations

import json

from pydantic import BeforeValidator, ValidationInfo

_MAX_DIGITS = 24


def _of_form(value: object, info: ValidationInfo) -> object:
    """Read what JSON would hold from the text of a form's field; empty texts are absent."""
    if info.mode != "python" or not isinstance(value, str):
        return value
    if not value:
        return None
    if len(value) > _MAX_DIGITS:
        return value
    try:
        return json.loads(value.lower(), parse_constant=str)
    except ValueError:
        return value


OfForm = BeforeValidator(_of_form)
"""For numbers and booleans of wire types that come as JSON or as a form."""
