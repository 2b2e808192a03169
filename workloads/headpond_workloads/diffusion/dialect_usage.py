"""What finished pictures came to, folded from the events of their items."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NotRequired, TypedDict

from headpond.call import Failed, Output
from headpond.dialect import ItemEvent
from headpond_workloads.diffusion.items import Painted
from headpond_workloads.diffusion.schema import InputTokenDetails, PictureUsage

_TOKEN_SIDE = 16
"""Pixels, on each side, for which a picture counts one token."""


class Description(TypedDict):
    """What it takes to paint a picture again, as the wire has it."""

    seed: int
    num_inference_steps: int
    guidance_scale: float
    scheduler: str
    size: str
    strength: NotRequired[float]


def painted(events: Sequence[ItemEvent]) -> list[Painted]:
    """Return the pictures of a call in the order of its items.

    Raises:
        HeadpondError: One of them failed.
    """
    found: dict[int, Painted] = {}
    for event in events:
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Output) and isinstance(event.payload, Painted):
            found[event.item] = event.payload
    return [found[item] for item in sorted(found)]


def size_of(picture: Painted) -> str:
    """Return a picture's size as the wire has it."""
    return f"{picture.width}x{picture.height}"


def described(picture: Painted) -> Description:
    """Return what it takes to paint a picture again."""
    description = Description(
        seed=picture.seed,
        num_inference_steps=picture.steps,
        guidance_scale=picture.guidance,
        scheduler=picture.scheduler,
        size=size_of(picture),
    )
    if picture.strength is not None:
        description["strength"] = picture.strength
    return description


def usage_of(pictures: Sequence[Painted], *, edits: bool) -> PictureUsage:
    """Return what was read for some pictures, and what was painted.

    Args:
        pictures: The pictures.
        edits: Whether each began from one, which is read at the size of the result.
    """
    texts = sum(each.text_tokens + each.negative_tokens for each in pictures)
    output = sum(
        ceil(each.width / _TOKEN_SIDE) * ceil(each.height / _TOKEN_SIDE) for each in pictures
    )
    source = output if edits else 0
    return PictureUsage(
        input_tokens=texts + source,
        input_tokens_details=InputTokenDetails(text_tokens=texts, image_tokens=source),
        output_tokens=output,
        total_tokens=texts + source + output,
    )
