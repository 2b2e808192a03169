"""The client's resource for image classification."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict, Unpack

from headpond.client.async_transport import AsyncTransport
from headpond.client.transport import Transport
from headpond.client.wire import encode
from headpond_workloads.vision.schema import (
    CLASSIFICATIONS_PATH,
    ClassificationList,
    ClassificationRequest,
)


class ClassificationParams(TypedDict):
    """Keyword arguments of `create`.

    Attributes:
        model: The alias of a model.
        image: One image or several: a file's bytes, base64, or a `data:` URL.
        top_k: The most classes for each; 5 when absent.
        labels: Only these labels are answered with.
        return_input: Whether each image comes back as the model saw it, as a `data:` URL.
        extra_body: Fields that this client does not know.
    """

    model: str
    image: bytes | str | Sequence[bytes | str]
    top_k: NotRequired[int]
    labels: NotRequired[Sequence[str]]
    return_input: NotRequired[bool]
    extra_body: NotRequired[Mapping[str, object]]


class Classifications:
    """`POST /v1/images/classifications`."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    def create(self, **params: Unpack[ClassificationParams]) -> ClassificationList:
        """Return the classes of each image; of several, one may have an error instead.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        return self._transport.post(CLASSIFICATIONS_PATH, _body(params), ClassificationList)


class AsyncClassifications:
    """`POST /v1/images/classifications`."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    async def create(self, **params: Unpack[ClassificationParams]) -> ClassificationList:
        """Return the classes of each image; of several, one may have an error instead.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        return await self._transport.post(CLASSIFICATIONS_PATH, _body(params), ClassificationList)


def _body(params: ClassificationParams) -> bytes:
    image = params["image"]
    texts = _text(image) if isinstance(image, bytes | str) else [_text(each) for each in image]
    return encode({**params, "image": texts}, ClassificationRequest)


def _text(image: bytes | str) -> str:
    return b64encode(image).decode() if isinstance(image, bytes) else image
