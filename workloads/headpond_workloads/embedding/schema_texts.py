"""Texts as embedding requests bring them: one or many, each as text or token IDs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from headpond_workloads.encoders.errors import EmptyInput, check_count
from headpond_workloads.encoders.schema_fields import MAX_INPUTS, Count, TokenIds


def _source(value: object) -> str | None:
    """Tell a text from token IDs, so that errors are about one of them."""
    if isinstance(value, str):
        return "a text"
    return "token IDs" if isinstance(value, list | tuple) else None


TextSource = Annotated[
    Annotated[str, Tag("a text")] | Annotated[TokenIds, Tag("token IDs")],
    Discriminator(
        _source,
        custom_error_type="text",
        custom_error_message="must be a string or an array of token IDs",
    ),
]
"""One text: itself, or its token IDs without special tokens."""

Dimensions = Count
"""How many leading values of a vector are wanted."""


def _form(value: object) -> str | None:
    """Tell the forms of `input` apart, so that errors are about one of them."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        return "ids" if value and isinstance(value[0], int) else "texts"
    return None


Texts = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[TokenIds, Tag("ids")]
    | Annotated[tuple[TextSource, ...], Field(fail_fast=True), Tag("texts")],
    Discriminator(
        _form,
        custom_error_type="texts",
        custom_error_message="must be a string, an array of token IDs, or an array of these",
    ),
]
"""`"a"`, `[1, 2]`, `["a", "b"]` or `[[1, 2], [3]]`; the first two are one text."""


def sources(texts: Texts, param: str, *, most: int = MAX_INPUTS) -> list[tuple[str, TextSource]]:
    """Return each text behind the field it came from, e.g. `input.3`.

    Args:
        texts: As the request brought them.
        param: Their field.
        most: The most there may be.

    Raises:
        EmptyInput: There is no text, or one is empty; names it.
        TooManyInputs: There are more than a call may hold.
    """
    found = _listed(texts, param)
    check_count(len(found), param, most)
    for field, text in found:
        if not text:
            raise EmptyInput("must not be empty", param=field)
    return found


def _listed(texts: Texts, param: str) -> list[tuple[str, TextSource]]:
    if isinstance(texts, str):
        return [(param, texts)]
    ids = tuple(entry for entry in texts if isinstance(entry, int))
    if ids:
        return [(param, ids)]
    return [
        (f"{param}.{at}", entry) for at, entry in enumerate(texts) if not isinstance(entry, int)
    ]
