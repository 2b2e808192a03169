"""The client's resource for pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Unpack, overload

from headpond.client.async_transport import AsyncTransport
from headpond.client.media import picture_text
from headpond.client.stream import AsyncStream, Stream
from headpond.client.transport import Transport
from headpond.client.wire import encode, options_of
from headpond_workloads.diffusion.client_params import EditParams, GenerateParams
from headpond_workloads.diffusion.schema import (
    EDITS_PATH,
    GENERATIONS_PATH,
    EditRequest,
    GenerationRequest,
    PictureEvent,
    PictureList,
)


class Images:
    """`POST /v1/images/generations` and `/v1/images/edits`."""

    def __init__(self, transport: Transport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    def generate(
        self, *, stream: Literal[False] = False, **params: Unpack[GenerateParams]
    ) -> PictureList: ...
    @overload
    def generate(
        self,
        *,
        stream: Literal[True],
        partial_images: int = 0,
        progress: bool = False,
        **params: Unpack[GenerateParams],
    ) -> Stream[PictureEvent]: ...
    def generate(
        self,
        *,
        stream: bool = False,
        partial_images: int = 0,
        progress: bool = False,
        **params: Unpack[GenerateParams],
    ) -> PictureList | Stream[PictureEvent]:
        """Return pictures that a text describes: all at once, or as they come.

        Args:
            stream: Whether to return a stream: previews, progress, and each picture.
            partial_images: How many previews of each picture, up to 3.
            progress: Whether each denoising step has an event.
            params: See `GenerateParams`.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        if not stream:
            body = encode(params, GenerationRequest)
            return self._transport.post(
                GENERATIONS_PATH, body, PictureList, options=options_of(params)
            )
        more = {"stream": True, "partial_images": partial_images, "progress": progress}
        body = encode({**params, **more}, GenerationRequest)
        return self._transport.stream(
            GENERATIONS_PATH,
            body,
            PictureEvent,
            is_last=_last_of(params.get("n") or 1),
            options=options_of(params),
        )

    @overload
    def edit(
        self, *, stream: Literal[False] = False, **params: Unpack[EditParams]
    ) -> PictureList: ...
    @overload
    def edit(
        self,
        *,
        stream: Literal[True],
        partial_images: int = 0,
        progress: bool = False,
        **params: Unpack[EditParams],
    ) -> Stream[PictureEvent]: ...
    def edit(
        self,
        *,
        stream: bool = False,
        partial_images: int = 0,
        progress: bool = False,
        **params: Unpack[EditParams],
    ) -> PictureList | Stream[PictureEvent]:
        """Return a picture changed as a text says: all of it, or what a mask leaves open.

        Args:
            stream: Whether to return a stream: previews, progress, and each picture.
            partial_images: How many previews of each picture, up to 3.
            progress: Whether each denoising step has an event.
            params: See `EditParams`.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        if not stream:
            return self._transport.post(
                EDITS_PATH, _edit_body(params), PictureList, options=options_of(params)
            )
        body = _edit_body(params, stream=True, partial_images=partial_images, progress=progress)
        return self._transport.stream(
            EDITS_PATH,
            body,
            PictureEvent,
            is_last=_last_of(params.get("n") or 1),
            options=options_of(params),
        )


class AsyncImages:
    """`POST /v1/images/generations` and `/v1/images/edits`."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Ask over `transport`."""
        self._transport = transport

    @overload
    async def generate(
        self, *, stream: Literal[False] = False, **params: Unpack[GenerateParams]
    ) -> PictureList: ...
    @overload
    async def generate(
        self,
        *,
        stream: Literal[True],
        partial_images: int = 0,
        progress: bool = False,
        **params: Unpack[GenerateParams],
    ) -> AsyncStream[PictureEvent]: ...
    async def generate(
        self,
        *,
        stream: bool = False,
        partial_images: int = 0,
        progress: bool = False,
        **params: Unpack[GenerateParams],
    ) -> PictureList | AsyncStream[PictureEvent]:
        """Return pictures that a text describes, as `Images.generate` does.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        if not stream:
            body = encode(params, GenerationRequest)
            return await self._transport.post(
                GENERATIONS_PATH, body, PictureList, options=options_of(params)
            )
        more = {"stream": True, "partial_images": partial_images, "progress": progress}
        body = encode({**params, **more}, GenerationRequest)
        return await self._transport.stream(
            GENERATIONS_PATH,
            body,
            PictureEvent,
            is_last=_last_of(params.get("n") or 1),
            options=options_of(params),
        )

    @overload
    async def edit(
        self, *, stream: Literal[False] = False, **params: Unpack[EditParams]
    ) -> PictureList: ...
    @overload
    async def edit(
        self,
        *,
        stream: Literal[True],
        partial_images: int = 0,
        progress: bool = False,
        **params: Unpack[EditParams],
    ) -> AsyncStream[PictureEvent]: ...
    async def edit(
        self,
        *,
        stream: bool = False,
        partial_images: int = 0,
        progress: bool = False,
        **params: Unpack[EditParams],
    ) -> PictureList | AsyncStream[PictureEvent]:
        """Return a picture changed as a text says, as `Images.edit` does.

        Raises:
            HeadpondError: The server's own error, or one of `headpond.client.errors`.
        """
        if not stream:
            return await self._transport.post(
                EDITS_PATH, _edit_body(params), PictureList, options=options_of(params)
            )
        body = _edit_body(params, stream=True, partial_images=partial_images, progress=progress)
        return await self._transport.stream(
            EDITS_PATH,
            body,
            PictureEvent,
            is_last=_last_of(params.get("n") or 1),
            options=options_of(params),
        )


def _edit_body(params: EditParams, **more: object) -> bytes:
    body: dict[str, object] = {**params, **more, "image": picture_text(params["image"])}
    mask = params.get("mask")
    if mask is not None:
        body["mask"] = picture_text(mask)
    return encode(body, EditRequest)


def _last_of(pictures: int) -> Callable[[PictureEvent], bool]:
    """Return what tells the last event of a stream: that of the picture that is done last."""
    done = 0

    def is_last(event: PictureEvent) -> bool:
        nonlocal done
        done += event.type.endswith(".completed")
        return done == pictures

    return is_last
