"""A sink: a vector store that a call's outputs are written to before the call is done."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from headpond.engine import Json
from headpond.errors import BundleError

PointId = int | str
"""An unsigned 64-bit integer, or a UUID in its canonical text form."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where the outputs of a call's items go, and under which names.

    Attributes:
        collection: Of the caller's own; those of other tenants are others.
        ids: One for each item, none twice. What had an ID before is replaced.
        payloads: What is kept beside each vector; none, or one for each item.
    """

    collection: str
    ids: tuple[PointId, ...]
    payloads: tuple[Mapping[str, Json], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One vector under its ID, as it is written; `vector` holds finite numbers."""

    point_id: PointId
    vector: Sequence[float]
    payload: Mapping[str, Json]


class Sink(Protocol):
    """A vector store. Called on the event loop's thread; must not hold it up."""

    async def write(self, tenant: str, collection: str, points: Sequence[Point]) -> None:
        """Insert or replace points; return when they are durable and can be found.

        Writing the same points again changes nothing, so what failed half-way, or was
        cancelled, can be repeated as a whole.

        Args:
            tenant: Whose they are; no other tenant's points are ever touched.
            collection: The tenant's name for where they go; made when it is not there.
            points: At least one; all vectors of the same length.

        Raises:
            InvalidRequest: The collection takes no such vectors.
            StoreUnavailable: They were not all written; a retry may do it.
        """
        ...

    async def close(self) -> None:
        """Let go of the connections."""
        ...


_QDRANT = r"qdrant\+https?://[^/?#@\s]+(/[^?#\s]*)?"
_PGVECTOR = r"pgvector\+postgresql://([^/?#@:\s]+@)?[^/?#@\s]*(/[^?#\s]*)?(\?[^#\s]*)?"
"""Neither holds a key: what is in a config is seen by many."""


class SinkSettings(BaseModel):
    """Which vector store a deployment writes to, where a caller asks for that.

    Attributes:
        url: Kind and address: `qdrant+http://host:6333`, `pgvector+postgresql://user@host/db`.
        api_key_env: The environment variable that holds the store's key, or password.
        distance: How vectors are compared in collections that are made here.
        timeout_s: How long the write of one call may take; the call's own deadline holds too.
        max_points: The most vectors of admitted calls that are not written yet.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: Annotated[str, Field(pattern=rf"^({_QDRANT}|{_PGVECTOR})$")]
    api_key_env: str | None = None
    distance: Literal["cosine", "dot", "euclid"] = "cosine"
    timeout_s: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    max_points: int = Field(default=8192, ge=1)

    def key(self) -> str | None:
        """Return the store's key; None when none is needed.

        Raises:
            BundleError: The environment variable is not set.
        """
        if self.api_key_env is None:
            return None
        if not (key := os.environ.get(self.api_key_env)):
            raise BundleError(f"{self.api_key_env} is not set", param="sink.api_key_env")
        return key


def open_sink(settings: SinkSettings) -> Sink:
    """Return the sink at an address; it is not asked for anything yet.

    Raises:
        BundleError: The store's client is not installed, or its key is not set.
    """
    kind = settings.url.partition("+")[0]
    # Imported here: the clients are heavy, and extras that few deployments install.
    try:
        module = import_module(f"headpond.sink_{kind}")
    except ModuleNotFoundError as error:
        raise BundleError(f"install headpond[{kind}] for a sink", param="sink.url") from error
    opened: Sink = getattr(module, f"open_{kind}")(settings)
    return opened


def collection_of(tenant: str, collection: str) -> str:
    """Return the name by which a store knows a tenant's collection.

    A collection's name holds no dot, so no tenant can name another's. What a store, or a URL,
    would not take in a tenant's name is written as `=` and its bytes in hex.
    """
    plain = re.sub(
        rb"[^A-Za-z0-9_-]", lambda found: b"=" + found[0].hex().encode(), tenant.encode()
    )
    return f"{plain.decode()}.{collection}"
