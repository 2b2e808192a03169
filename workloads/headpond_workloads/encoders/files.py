"""A bundle's JSON files, read into the types that say what they may hold."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from headpond.bundle.store import Bundle
from headpond.errors import BundleError

Document = TypeVar("Document", bound=BaseModel)


def read(bundle: Bundle, name: str, kind: type[Document]) -> Document:
    """Read an artifact that has to be there.

    Raises:
        BundleError: The bundle has none of this name, or it says something else.
    """
    path = bundle.artifact(name)
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BundleError(
            f"artifact {name!r}: {where}: {first['msg']}", param=f"artifacts.{name}"
        ) from None


def read_if_there(bundle: Bundle, name: str, kind: type[Document]) -> Document | None:
    """Read an artifact that a bundle may lack.

    Raises:
        BundleError: It says something else.
    """
    return read(bundle, name, kind) if name in bundle.files else None
