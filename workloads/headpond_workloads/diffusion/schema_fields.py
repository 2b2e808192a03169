"""Fields of requests for pictures, as JSON and as forms have them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from headpond.form_field import OfForm
from headpond.pattern import spelled
from headpond_workloads.diffusion.items import Medium, Scheduler

MAX_PICTURES = 10
MAX_STEPS = 1000
MAX_PARTIALS = 3
MAX_GUIDANCE = 100.0
MAX_PROMPT_CHARACTERS = 32_000

MAX_SEED = 2**53 - 1 - MAX_PICTURES
"""So that the last of a call's seeds, too, is a whole number to every reader of JSON."""

Quality = Literal["low", "medium", "high", "xhigh", "max", "auto", "standard", "hd"]


def _empty_is_absent(value: object, info: ValidationInfo) -> object:
    return None if value == "" and info.mode == "python" else value


FormText = BeforeValidator(_empty_is_absent)

Count = Annotated[int, Field(strict=True, ge=1, le=MAX_PICTURES)]
Size = Annotated[
    str,
    Field(
        pattern=r"^(auto|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$",
        description="Width and height in pixels, `WIDTHxHEIGHT`; `auto` for the model's own.",
    ),
    spelled("must be `WIDTHxHEIGHT` in pixels, such as 512x512, or `auto`"),
]
Compression = Annotated[
    int,
    Field(strict=True, ge=0, le=100, description="Quality of jpeg and webp, 0 to 100 (100)."),
]
Partials = Annotated[
    int,
    Field(
        strict=True,
        ge=0,
        le=MAX_PARTIALS,
        description="Previews in a stream; fewer come where there are fewer steps.",
    ),
]
Seed = Annotated[
    int,
    Field(
        strict=True,
        ge=0,
        le=MAX_SEED,
        description="Of the first picture; the next ones have the numbers that follow.",
    ),
]
Steps = Annotated[
    int,
    Field(strict=True, ge=1, le=MAX_STEPS, description="Denoising steps; the model's when absent."),
]
Guidance = Annotated[
    float,
    Field(
        strict=True,
        ge=0.0,
        le=MAX_GUIDANCE,
        allow_inf_nan=False,
        description="How strictly the prompt is followed; up to 1 there is no guidance.",
    ),
]
Strength = Annotated[
    float,
    Field(
        strict=True,
        gt=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="How much may change: the part of the steps that is run, at least one of "
        "them. 0.8 when absent, and 1 with a mask.",
    ),
]
Prompt = Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARACTERS)]
NegativePrompt = Annotated[
    str,
    Field(
        max_length=MAX_PROMPT_CHARACTERS,
        description="What the picture must not show; used with guidance only.",
    ),
]
Flag = Annotated[bool, Field(strict=True)]


class PictureFields(BaseModel):
    """What generations and edits have in common."""

    model_config = ConfigDict(frozen=True)

    prompt: Prompt
    model: Annotated[Annotated[str, Field(min_length=1)] | None, FormText] = None
    n: Annotated[Count | None, OfForm] = None
    size: Annotated[Size | None, FormText] = None
    quality: Annotated[
        Quality | None,
        FormText,
        Field(description="Changes nothing: `num_inference_steps` does."),
    ] = None
    moderation: Annotated[
        Literal["low", "auto"] | None,
        FormText,
        Field(description="Changes nothing: prompts and pictures are not judged here."),
    ] = None
    style: Annotated[
        str | None, FormText, Field(description="Refused: a style belongs into the prompt.")
    ] = None
    background: Annotated[
        Literal["auto", "opaque", "transparent"] | None,
        FormText,
        Field(description="Pictures are opaque; `transparent` is refused."),
    ] = None
    output_format: Annotated[Medium | None, FormText] = None
    output_compression: Annotated[Compression | None, OfForm] = None
    response_format: Annotated[
        Literal["b64_json", "url"] | None,
        FormText,
        Field(description="Pictures are in the answer; `url` is refused."),
    ] = None
    stream: Annotated[Flag | None, OfForm] = None
    partial_images: Annotated[Partials | None, OfForm] = None
    progress: Annotated[
        Flag | None,
        OfForm,
        Field(description="Whether a stream has an event, too, for each step that was done."),
    ] = None
    negative_prompt: NegativePrompt | None = None
    seed: Annotated[Seed | None, OfForm] = None
    num_inference_steps: Annotated[Steps | None, OfForm] = None
    guidance_scale: Annotated[Guidance | None, OfForm] = None
    scheduler: Annotated[
        Scheduler | None,
        FormText,
        Field(description="One that suits the model; the model's own when absent."),
    ] = None
    user: str | None = None
