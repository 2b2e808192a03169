"""Texts of a form of their own, refused in words and not by the regular expression they miss."""

from __future__ import annotations

from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

_MISSED = "string_pattern_mismatch"


def spelled(how: str) -> WrapValidator:
    """Return what tells callers how a text with a `pattern` has to look.

    Args:
        how: Goes on after the field's name: `must be hours or minutes, such as 24h`.
    """

    def check(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError as error:
            if error.errors(include_url=False, include_input=False)[0]["type"] != _MISSED:
                raise
        raise PydanticCustomError("spelling", "{how}", {"how": how})

    return WrapValidator(check)
