"""What is asked of a diffusion model, and what it gives.

One item is one picture; a call for n pictures has n items, each with a seed of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Medium(StrEnum):
    """The format of a picture's file."""

    PNG = "png"
    JPEG = "jpeg"
    WEBP = "webp"


class Scheduler(StrEnum):
    """A rule by which noise is taken away, under the name that people know it by.

    A bundle lists those that suit its model.
    """

    DDIM = "ddim"
    DDPM = "ddpm"
    PNDM = "pndm"
    EULER = "euler"
    EULER_KARRAS = "euler_karras"
    EULER_ANCESTRAL = "euler_ancestral"
    DPMPP_2M = "dpmpp_2m"
    DPMPP_2M_KARRAS = "dpmpp_2m_karras"
    UNIPC = "unipc"
    LCM = "lcm"
    FLOW_MATCH_EULER = "flow_match_euler"


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoding:
    """How a finished picture is written.

    Attributes:
        medium: The format.
        compression: Quality of JPEG and WEBP, from 0 to 100; PNG loses nothing at any.
    """

    medium: Medium = Medium.PNG
    compression: int = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A picture to begin from.

    Attributes:
        image: The file.
        mask: A file of the same size whose transparent part is painted anew and the rest
            kept; None to repaint all of it.
        strength: How much of it may change, above 0 and up to 1: the part of the steps that
            is run, at least one of them.
    """

    image: bytes
    mask: bytes | None
    strength: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """One picture to paint. None is always the bundle's own choice.

    Attributes:
        prompt: What it shows.
        negative_prompt: What it must not show; only used with guidance.
        width: Pixels.
        height: Pixels.
        steps: Denoising steps.
        guidance: How strictly it follows the prompt; up to 1 there is no guidance.
        scheduler: One of `Scheduler`.
        seed: Where its noise comes from. Item i of a call has the first one's plus i.
        encoding: How it is written.
        partials: How many previews are wanted, at most one a step.
        source: What it begins from; None for noise alone.
    """

    prompt: str
    negative_prompt: str | None = None
    width: int | None = None
    height: int | None = None
    steps: int | None = None
    guidance: float | None = None
    scheduler: str | None = None
    seed: int
    encoding: Encoding = Encoding()
    partials: int = 0
    source: Source | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """The first output of an item, before its first step: what it will be.

    Attributes:
        steps: Denoising steps that will be run.
        width: Pixels.
        height: Pixels.
    """

    steps: int
    width: int
    height: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Stepped:
    """Progress: `step` of `steps` are done. At most one a step."""

    step: int
    steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What the picture looks like so far.

    Attributes:
        index: From 0.
        content: The file.
        medium: Its format.
    """

    index: int
    content: bytes
    medium: Medium


@dataclass(frozen=True, kw_only=True, slots=True)
class Painted:
    """The last output of an item: the picture, and all that it takes to paint it again.

    Attributes:
        content: The file.
        medium: Its format.
        width: Pixels.
        height: Pixels.
        seed: As asked for.
        steps: Denoising steps, as asked for; an edit ran a part of them.
        strength: As it was used; None where the picture began from noise alone.
        guidance: As it was used.
        scheduler: As it was used.
        text_tokens: Tokens of the prompt, as the model read them.
        negative_tokens: Tokens of the negative prompt; 0 where there was no guidance.
    """

    content: bytes
    medium: Medium
    width: int
    height: int
    seed: int
    steps: int
    strength: float | None
    guidance: float
    scheduler: str
    text_tokens: int
    negative_tokens: int
