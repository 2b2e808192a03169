"""OpenAI's images dialect: `POST /v1/images/generations` and `/v1/images/edits`."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Sequence

from headpond.dialect import Ask, Exchange, Heading, ItemEvent, StreamWriter
from headpond.encoded import file_bytes
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.units import Work
from headpond_workloads.diffusion.dialect_stream import EDIT, GENERATION, EventNames, PictureWriter
from headpond_workloads.diffusion.dialect_usage import described, painted, size_of, usage_of
from headpond_workloads.diffusion.items import Encoding, Medium, Picture, Source
from headpond_workloads.diffusion.schema import (
    EDITS_PATH,
    EditRequest,
    GenerationRequest,
    PictureData,
    PictureList,
    VariationRequest,
)
from headpond_workloads.diffusion.schema_fields import PictureFields

_DRAWN_SEEDS = 2**32
_FULL_QUALITY = 100
_STREAMED = {"partial_images": "partial images come", "progress": "progress comes"}
_REPAINT = 0.8
"""The strength of edits that don't say; all of it where a mask says what to keep."""


class PictureExchange(Exchange):
    """Pictures from what one request says, each an item of its own."""

    def __init__(self, request: PictureFields, names: EventNames, *, edits: bool = False) -> None:
        """Read a request of the right types.

        Args:
            request: What it says.
            names: What the events of its stream are called.
            edits: Whether its pictures begin from one of the caller's.
        """
        self._request = request
        self._names = names
        self._edits = edits
        given = request.seed
        self._first_seed = secrets.randbelow(_DRAWN_SEEDS) if given is None else given

    def ask(self) -> Ask:
        """Return one item for each picture.

        Raises:
            InvalidRequest: Fields that contradict each other.
            UnsupportedParameter: Something the dialect knows and no model here does.
        """
        request = self._request
        self._check_answer()
        width, height = _sides(request.size)
        encoding, source = self._encoding(), self._source()
        items = tuple(
            Picture(
                prompt=request.prompt,
                negative_prompt=request.negative_prompt,
                width=width,
                height=height,
                steps=request.num_inference_steps,
                guidance=request.guidance_scale,
                scheduler=None if request.scheduler is None else request.scheduler.value,
                seed=self._first_seed + at,
                encoding=encoding,
                partials=request.partial_images or 0,
                source=source,
            )
            for at in range(request.n or 1)
        )
        return Ask(model=request.model, items=items, stream=bool(request.stream))

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> PictureList:
        """Return the pictures in the order of their seeds.

        Raises:
            HeadpondError: One of them failed.
        """
        pictures = painted(events)
        return PictureList(
            created=heading.created_s,
            data=[
                PictureData(b64_json=b64encode(each.content).decode(), **described(each))
                for each in pictures
            ],
            output_format=pictures[0].medium,
            size=size_of(pictures[0]),
            usage=usage_of(pictures, edits=self._edits),
        )

    def stream(self, heading: Heading) -> StreamWriter:
        """Return the writer of a stream."""
        progress = bool(self._request.progress)
        return PictureWriter(self._names, progress=progress, edits=self._edits)

    def _source(self) -> Source | None:
        return None

    def _check_answer(self) -> None:
        request = self._request
        if request.response_format == "url":
            raise UnsupportedParameter(
                "pictures are not kept here, so there is no URL to them; ask for b64_json",
                param="response_format",
            )
        if request.style is not None:
            raise UnsupportedParameter("say in the prompt which style you want", param="style")
        if request.background == "transparent":
            raise UnsupportedParameter("pictures are opaque", param="background")
        for name, noun in _STREAMED.items():
            if getattr(request, name) and not request.stream:
                raise InvalidRequest(f"{noun} in a stream; set stream", param=name)

    def _encoding(self) -> Encoding:
        medium = self._request.output_format or Medium.PNG
        quality = self._request.output_compression
        if medium is Medium.PNG and quality not in (None, _FULL_QUALITY):
            raise InvalidRequest(
                "png loses nothing; output_compression is for jpeg and webp",
                param="output_compression",
            )
        return Encoding(medium=medium, compression=_FULL_QUALITY if quality is None else quality)


class GenerationExchange(PictureExchange):
    """Pictures from text alone."""

    def __init__(self, request: GenerationRequest) -> None:
        """Read a request of the right types."""
        super().__init__(request, GENERATION)


class EditExchange(PictureExchange):
    """Pictures from a picture and a text."""

    def __init__(self, request: EditRequest) -> None:
        """Read a request of the right types."""
        super().__init__(request, EDIT, edits=True)
        self._edit = request

    def _source(self) -> Source:
        edit = self._edit
        if edit.input_fidelity is not None:
            raise UnsupportedParameter(
                "say by strength how much may change", param="input_fidelity"
            )
        if edit.markup is not None:
            raise UnsupportedParameter("drawings over a picture are not read", param="markup")
        if len(edit.image) > 1:
            raise UnsupportedParameter("one picture is edited at a time", param="image")
        mask = None if edit.mask is None else file_bytes(edit.mask, "mask", "mask")
        strength = edit.strength
        if strength is None:
            strength = _REPAINT if mask is None else 1.0
        image = file_bytes(edit.image[0], "image", "image")
        return Source(image=image, mask=mask, strength=strength)


class VariationExchange(Exchange):
    """Pictures like another. No model here paints without a text."""

    def __init__(self, request: VariationRequest) -> None:
        """Read a request of the right types."""
        self._request = request

    def ask(self) -> Ask:
        """Refuse.

        Raises:
            UnsupportedParameter: Always; says where to go instead.
        """
        raise UnsupportedParameter(
            f"variations are not made here; POST the picture with a prompt to {EDITS_PATH}",
            param="image",
        )

    def body(self, heading: Heading, events: Sequence[ItemEvent], work: Work) -> PictureList:
        """Refuse, as `ask` does."""
        raise UnsupportedParameter("variations are not made here", param="image")


def _sides(size: str | None) -> tuple[int, int] | tuple[None, None]:
    if size is None or size == "auto":
        return None, None
    width, _, height = size.partition("x")
    return int(width), int(height)
