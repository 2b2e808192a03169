"""A section of a bundle's manifest as a type of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from headpond.engine import Json
from headpond.errors import BundleError

Read = TypeVar("Read", bound=BaseModel)


class Section(BaseModel):
    """Immutable, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_section(kind: type[Read], given: Mapping[str, Json], where: str) -> Read:
    """Return a section of the manifest as what it means.

    Args:
        kind: What it should be.
        given: What the manifest says.
        where: The section's path, for messages.

    Raises:
        BundleError: Names the first field that is not valid.
    """
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join([where, *map(str, first["loc"])])
        raise BundleError(f"{path}: {first['msg']}", param=path) from None
