"""A bundle's fixtures as items: one query, and the document that is scored against it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from headpond.engine import Json
from headpond.errors import BundleError
from headpond_workloads.reranking.items import PairItem


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: str
    document: str | None = None


def item_of_fixture(given: Mapping[str, Json]) -> PairItem:
    """Return the item that a fixture's input asks for.

    Raises:
        BundleError: It is not a `query` with an optional `document`.
    """
    try:
        fixture = _Given.model_validate(given)
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, each["loc"])) for each in error.errors())
        raise BundleError(f"a fixture's input is not valid: {fields}", param="fixtures") from None
    return PairItem(query=fixture.query, document=fixture.document, param="fixtures")
