"""Variables for the model's chat template."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import to_json

from headpond.engine import Json
from headpond.errors import InvalidRequest

MAX_BYTES = 16 * 2**10


def template_options(
    effort: str | None, options: Mapping[str, JsonValue] | None
) -> Mapping[str, Json]:
    """Return the variables that a request sets.

    Raises:
        InvalidRequest: They are too long.
    """
    found: dict[str, Json] = {} if effort is None else {"reasoning_effort": effort}
    if not options:
        return found
    if len(to_json(dict(options))) > MAX_BYTES:
        raise InvalidRequest(
            f"must not be longer than {MAX_BYTES} bytes", param="chat_template_kwargs"
        )
    return found | dict(options)
