"""Qdrant as a sink."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from json import JSONDecodeError

from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse
from qdrant_client.models import Distance, PointStruct, UpdateStatus, VectorParams

from headpond.errors import HeadpondError, InvalidRequest, StoreUnavailable
from headpond.sink import Point, SinkSettings, collection_of

_DISTANCES = {"cosine": Distance.COSINE, "dot": Distance.DOT, "euclid": Distance.EUCLID}
_PART_VALUES = 8_192
"""Numbers in one request: as JSON they hold the event loop for some milliseconds."""
_CONFLICT = 409
_CALLERS_FAULT = frozenset({400, 413, 422})


def open_qdrant(settings: SinkSettings) -> QdrantSink:
    """Return the Qdrant at an address; nothing is sent yet.

    Raises:
        BundleError: The environment variable of the key is not set.
    """
    client = AsyncQdrantClient(
        url=settings.url.removeprefix("qdrant+"),
        api_key=settings.key(),
        timeout=math.ceil(settings.timeout_s),
        check_compatibility=False,  # it would ask the server now
    )
    return QdrantSink(client, _DISTANCES[settings.distance])


class QdrantSink:
    """Writes points over one client.

    Each tenant has collections of its own: `<tenant>.<collection>`. A collection's name
    holds no dot, so no tenant can name another's.
    """

    def __init__(self, client: AsyncQdrantClient, distance: Distance = Distance.COSINE) -> None:
        """Write over `client`.

        Args:
            client: Closed with the sink.
            distance: Of collections that are made here.
        """
        self._client = client
        self._distance = distance

    async def write(self, tenant: str, collection: str, points: Sequence[Point]) -> None:
        """Insert or replace points, part by part; see `Sink`.

        Raises:
            InvalidRequest: The collection holds vectors of another length, or with names.
            StoreUnavailable: Qdrant cannot be reached, or did not take all.
        """
        name = collection_of(tenant, collection)
        try:
            await self._prepare(name, len(points[0].vector))
            for part in _parts(points):
                result = await self._client.upsert(name, part, wait=True)
                if result.status is not UpdateStatus.COMPLETED:
                    raise StoreUnavailable
        except UnexpectedResponse as error:
            raise _refused(error) from error
        except (ApiException, QdrantException, JSONDecodeError) as error:
            raise StoreUnavailable from error

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()

    async def _prepare(self, name: str, size: int) -> None:
        """Make a collection that is not there; check that it takes vectors of `size`."""
        if not await self._client.collection_exists(name):
            made = VectorParams(size=size, distance=self._distance)
            try:
                await self._client.create_collection(name, vectors_config=made)
            except UnexpectedResponse as error:
                if error.status_code != _CONFLICT:  # another call made it meanwhile
                    raise
        vectors = (await self._client.get_collection(name)).config.params.vectors
        if not isinstance(vectors, VectorParams):
            raise InvalidRequest("the collection's vectors have names", param="store.collection")
        if vectors.size != size:
            raise InvalidRequest(
                f"the collection holds vectors of {vectors.size} values, not {size}",
                param="store.collection",
            )


def _parts(points: Sequence[Point]) -> Iterator[list[PointStruct]]:
    length = max(_PART_VALUES // len(points[0].vector), 1)
    for at in range(0, len(points), length):
        yield [
            PointStruct(id=point.point_id, vector=list(point.vector), payload=dict(point.payload))
            for point in points[at : at + length]
        ]


def _refused(error: UnexpectedResponse) -> HeadpondError:
    if error.status_code in _CALLERS_FAULT:
        return InvalidRequest("the vector store refused the points", param="store")
    return StoreUnavailable()
