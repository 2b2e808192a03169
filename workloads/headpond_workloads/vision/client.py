"""The client's resource for image classification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NotRequired, Unpack

from headpond.client.async_transport import AsyncTransport
from headpond.client.media import picture_text
from headpond.client.options import CallOptions
from headpond.client.transport import Transport
from headpond.client.wire import encode, options_of
from headpond_workloads.vision.schema import (
    CLASSIFICATIONS_PATH,
    ClassificationList,
    ClassificationRequest,
)

if TYPE_CHECKING:
    from headpond.client.media import Picture


class ClassificationParams(CallOptions):
    """Keyword arguments of `create`; None is the same as absent.

    Attributes:
        model: The alias of a model.
        image: One image or several: each a path (`Path`), a file's bytes, an open file, a picture
            of Pillow's, an array of uint8, base64, or a `data:` URL.
        top_k: The most classes for each; 5 when absent.
        labels: Only these labels are answered with.
        return_input: Whether each image comes back as the model saw it, as a `data:` URL.
    """

    model: str
    image: Picture | Sequence[Picture]
    top_k: NotRequired[int | None]
    labels: NotRequired[Sequence[str] | None]
    return_input: NotRequired[bool | None]


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
        return self._transport.post(
            CLASSIFICATIONS_PATH, _body(params), ClassificationList, options=options_of(params)
        )


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
        return await self._transport.post(
            CLASSIFICATIONS_PATH, _body(params), ClassificationList, options=options_of(params)
        )


def _body(params: ClassificationParams) -> bytes:
    image = params["image"]
    pictures = image if isinstance(image, list | tuple) else (image,)
    texts = [picture_text(each) for each in pictures]
    return encode({**params, "image": texts}, ClassificationRequest)
