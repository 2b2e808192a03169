"""Wire types of `POST /v1/images/generations` and of its sisters."""

from __future__ import annotations

from base64 import b64decode
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headpond.form_field import OfForm
from headpond_workloads.diffusion.items import Medium
from headpond_workloads.diffusion.schema_fields import (
    FormText,
    PictureFields,
    Strength,
)

if TYPE_CHECKING:
    from PIL.Image import Image

GENERATIONS_PATH = "/v1/images/generations"
EDITS_PATH = "/v1/images/edits"
VARIATIONS_PATH = "/v1/images/variations"

ProgressName = Literal["image_generation.progress", "image_edit.progress"]
PartialName = Literal["image_generation.partial_image", "image_edit.partial_image"]
CompletedName = Literal["image_generation.completed", "image_edit.completed"]


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str | bytes) else value


File = str | bytes
_FILE = "The file itself in a form; base64, or a `data:` URL, in JSON."


class GenerationRequest(PictureFields):
    """Pictures that are asked for by text."""


class EditRequest(PictureFields):
    """A picture that is to be changed as a text says."""

    image: Annotated[
        tuple[File, ...],
        Field(min_length=1, max_length=16, description=f"The picture. {_FILE}"),
        BeforeValidator(_listed, json_schema_input_type=str | list[str]),
    ]
    mask: Annotated[
        File | None,
        FormText,
        Field(
            description="What is transparent in it is painted anew, and the rest kept; of the "
            f"picture's size. {_FILE}"
        ),
    ] = None
    strength: Annotated[Strength | None, OfForm] = None
    input_fidelity: Annotated[
        str | None, FormText, Field(description="Refused: `strength` says how much may change.")
    ] = None
    markup: Annotated[File | None, FormText, Field(description="Refused.")] = None


class VariationRequest(BaseModel):
    """A picture of which others are asked for; refused, see the route."""

    model_config = ConfigDict(frozen=True)

    image: File
    model: str | None = None


class InputTokenDetails(BaseModel):
    """Of the input tokens, how many were text, and how many a picture to begin from."""

    text_tokens: int
    image_tokens: int


class PictureUsage(BaseModel):
    """What was read and painted.

    Texts are counted as the model reads them, the negative prompt's where it is used, once
    for each picture. A picture counts a token for each 16 by 16 pixels, begun ones too.
    """

    input_tokens: int
    input_tokens_details: InputTokenDetails
    output_tokens: int
    total_tokens: int


class File64(BaseModel):
    """A picture's file, in base64."""

    b64_json: str

    @property
    def content(self) -> bytes:
        """The file."""
        return b64decode(self.b64_json)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file."""
        Path(path).write_bytes(self.content)

    def pillow(self) -> Image:
        """Return the picture as Pillow has it; needs Pillow."""
        from PIL.Image import open as opened  # noqa: PLC0415 - clients may have none

        return opened(BytesIO(self.content))


class PictureData(File64):
    """A picture, and what it takes to paint it again.

    `num_inference_steps` are those that were asked for; of an edit, `strength` is the part of
    them that was run.
    """

    seed: int
    num_inference_steps: int
    guidance_scale: float
    scheduler: str
    size: str
    strength: float | None = Field(default=None, exclude_if=lambda value: value is None)


class PictureList(BaseModel):
    """The pictures of one call, in the order of their seeds."""

    created: int
    data: list[PictureData]
    background: Literal["opaque"] = "opaque"
    output_format: Medium
    size: str
    usage: PictureUsage


class ProgressEvent(BaseModel):
    """Steps that were done of a picture; only where they were asked for."""

    type: ProgressName
    index: int
    step: int
    steps: int


class PartialEvent(File64):
    """What a picture looks like so far."""

    type: PartialName
    index: int
    partial_image_index: int
    created_at: int
    size: str
    quality: Literal["auto"] = "auto"
    background: Literal["opaque"] = "opaque"
    output_format: Medium


class CompletedEvent(PictureData):
    """A picture that is done. A stream has one for each, and then ends."""

    type: CompletedName
    index: int
    created_at: int
    quality: Literal["auto"] = "auto"
    background: Literal["opaque"] = "opaque"
    output_format: Medium
    usage: PictureUsage


class PictureEvent(BaseModel):
    """One event of a stream; `index` is the picture's place among several.

    A progress event has `step` and `steps`; the others a file, those of partial images their
    `partial_image_index`, and completed ones what the pictures of whole answers have.
    """

    type: ProgressName | PartialName | CompletedName
    index: int
    step: int | None = None
    steps: int | None = None
    b64_json: str | None = None
    partial_image_index: int | None = None
    created_at: int | None = None
    size: str | None = None
    quality: str | None = None
    background: str | None = None
    output_format: Medium | None = None
    seed: int | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    scheduler: str | None = None
    strength: float | None = None
    usage: PictureUsage | None = None

    @property
    def content(self) -> bytes:
        """The file; empty of an event that has none."""
        return b64decode(self.b64_json or "")

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file."""
        Path(path).write_bytes(self.content)

    def pillow(self) -> Image:
        """Return the picture as Pillow has it; needs Pillow."""
        from PIL.Image import open as opened  # noqa: PLC0415 - clients may have none

        return opened(BytesIO(self.content))
