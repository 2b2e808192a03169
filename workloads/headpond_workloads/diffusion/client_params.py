"""Keyword arguments of the client's calls for pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NotRequired

from headpond.client.options import CallOptions

if TYPE_CHECKING:
    from headpond.client.media import Picture


class GenerateParams(CallOptions):
    """Keyword arguments of `generate`; None is the same as absent.

    Attributes:
        prompt: What the picture shows.
        model: The alias of a model; may be left out where one model paints.
        n: How many pictures, up to 10.
        size: Width and height in pixels, e.g. `512x512`; the model's own when absent.
        output_format: `png` unless it says otherwise.
        output_compression: Quality of jpeg and webp, 0 to 100.
        negative_prompt: What the picture must not show; used with guidance.
        seed: Of the first picture; the next ones have the numbers that follow. The server
            draws one when absent, and tells it.
        num_inference_steps: Denoising steps.
        guidance_scale: How strictly the prompt is followed; up to 1 there is no guidance.
        scheduler: One that suits the model, e.g. `euler`.
    """

    prompt: str
    model: NotRequired[str | None]
    n: NotRequired[int | None]
    size: NotRequired[str | None]
    output_format: NotRequired[Literal["png", "jpeg", "webp"] | None]
    output_compression: NotRequired[int | None]
    negative_prompt: NotRequired[str | None]
    seed: NotRequired[int | None]
    num_inference_steps: NotRequired[int | None]
    guidance_scale: NotRequired[float | None]
    scheduler: NotRequired[str | None]


class EditParams(GenerateParams):
    """Keyword arguments of `edit`; None is the same as absent.

    Attributes:
        image: The picture to begin from: a path (`Path`), a file's bytes, an open file, a picture
            of Pillow's, an array of uint8, base64, or a `data:` URL.
        mask: One of the same size; what is transparent in it is painted anew.
        strength: How much may change, above 0 and up to 1: the part of the steps that is run.
    """

    image: Picture
    mask: NotRequired[Picture | None]
    strength: NotRequired[float | None]
