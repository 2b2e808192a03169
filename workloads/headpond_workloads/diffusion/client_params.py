"""Keyword arguments of the client's calls for pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict


class GenerateParams(TypedDict):
    """Keyword arguments of `generate`.

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
        extra_body: Fields that this client does not know.
    """

    prompt: str
    model: NotRequired[str]
    n: NotRequired[int]
    size: NotRequired[str]
    output_format: NotRequired[Literal["png", "jpeg", "webp"]]
    output_compression: NotRequired[int]
    negative_prompt: NotRequired[str]
    seed: NotRequired[int]
    num_inference_steps: NotRequired[int]
    guidance_scale: NotRequired[float]
    scheduler: NotRequired[str]
    extra_body: NotRequired[Mapping[str, object]]


class EditParams(GenerateParams):
    """Keyword arguments of `edit`.

    Attributes:
        image: The picture to begin from: a file's bytes, base64, or a `data:` URL.
        mask: A file of the same size; what is transparent in it is painted anew.
        strength: How much may change, above 0 and up to 1: the part of the steps that is run.
    """

    image: bytes | str
    mask: NotRequired[bytes | str]
    strength: NotRequired[float]
