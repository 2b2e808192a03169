"""Vectors that go to a vector store before the call is done: dialects, extended."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headpond.errors import InvalidRequest
from headpond.sink import Placement
from headpond_workloads.embedding.items import Embedding
from headpond_workloads.embedding.vectors import numbers

STORE_DESCRIPTION = "Extension: write the vectors to the deployment's vector store first."

_ID_BITS = 64

Identifier = Annotated[int, Field(strict=True, ge=0, lt=2**_ID_BITS)] | UUID


class StoreRequest(BaseModel):
    """Where the vectors go, and under which names."""

    model_config = ConfigDict(frozen=True)

    collection: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    ids: Annotated[tuple[Identifier, ...], Field(fail_fast=True)]
    payloads: Annotated[tuple[Mapping[str, JsonValue], ...], Field(fail_fast=True)] | None = None

    def placement(self, count: int) -> Placement:
        """Return the same for a call of `count` texts.

        Raises:
            InvalidRequest: There is not one ID, or payload, for each text, an ID comes twice,
                or a payload holds NaN or infinity.
        """
        _check_length(self.ids, count, "store.ids")
        ids = tuple(each if isinstance(each, int) else str(each) for each in self.ids)
        if len(set(ids)) < count:
            raise InvalidRequest("an ID comes twice", param="store.ids")
        payloads = self.payloads or ()
        if self.payloads is not None:
            _check_length(payloads, count, "store.payloads")
        try:
            json.dumps(payloads, allow_nan=False)
        except ValueError:
            raise InvalidRequest("holds NaN or infinity", param="store.payloads") from None
        return Placement(collection=self.collection, ids=ids, payloads=payloads)


def vector(payload: object) -> array[float]:
    """Return the one vector of a text.

    Raises:
        TypeError: The engine gave something else.
    """
    if not isinstance(payload, Embedding):
        raise TypeError(f"embedding gives Embedding, not {type(payload).__name__}")
    return numbers(payload.vectors)


def _check_length(given: tuple[object, ...], count: int, param: str) -> None:
    if len(given) != count:
        raise InvalidRequest(f"{len(given)} for {count} texts; give one for each", param=param)
