"""A bundle's fixtures as items: one text, and how much of its vector is compared."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from headpond.engine import Json
from headpond.errors import BundleError
from headpond_workloads.embedding.items import EmbedItem


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    prompt: str | None = None
    dimensions: int | None = None


def item_of_fixture(given: Mapping[str, Json]) -> EmbedItem:
    """Return the item that a fixture's input asks for.

    Raises:
        BundleError: It is not exactly one of `text` and `token_ids`, with an optional `prompt`
            and `dimensions`.
    """
    try:
        fixture = _Given.model_validate(given)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, each["loc"])) for each in error.errors())
        raise BundleError(f"a fixture's input is not valid: {fields}", param="fixtures") from None
    if (fixture.text is None) == (fixture.token_ids is None):
        raise BundleError("a fixture needs either text or token_ids", param="fixtures")
    return EmbedItem(
        text=fixture.text if fixture.text is not None else fixture.token_ids or (),
        prompt=fixture.prompt,
        dimensions=fixture.dimensions,
        param="fixtures",
    )
