"""Wire types of `POST /v1/images/classifications`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from headpond.form_field import OfForm

CLASSIFICATIONS_PATH = "/v1/images/classifications"
MAX_IMAGES = 64
"""The most images of one call."""

MAX_LABELS = 1024
MAX_TOP_K = 100_000
_NO_IMAGE = "must be an image as a string: base64, or a data: URL"


def _listed(value: object) -> object:
    """Read one as a list of one; refuse what is neither, and more than may be."""
    if isinstance(value, str | bytes):
        return (value,)
    if not isinstance(value, list | tuple):
        raise PydanticCustomError("images", f"{_NO_IMAGE}, or an array of these")
    if len(value) > MAX_IMAGES:
        raise PydanticCustomError("too_many", f"must hold at most {MAX_IMAGES} images")
    return value


def _image(value: object) -> object:
    if not isinstance(value, str | bytes):
        raise PydanticCustomError("image", _NO_IMAGE)
    return value


def _label_list(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Images = Annotated[
    tuple[Annotated[str | bytes, BeforeValidator(_image)], ...],
    Field(
        min_length=1,
        fail_fast=True,
        description="One image or a list: base64, or a `data:` URL; files in a form.",
    ),
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]
Label = Annotated[str, Field(min_length=1)]
Labels = Annotated[
    tuple[Label, ...],
    Field(
        min_length=1,
        max_length=MAX_LABELS,
        fail_fast=True,
        description="Only these labels are answered with; scores stay those over all labels.",
    ),
    BeforeValidator(_label_list, json_schema_input_type=str | list[str]),
]
TopK = Annotated[
    int,
    Field(strict=True, ge=1, le=MAX_TOP_K, description="The most classes to answer with (5)."),
    OfForm,
]


class ClassificationRequest(BaseModel):
    """Images whose classes are asked for."""

    model_config = ConfigDict(frozen=True)

    model: Annotated[str, Field(min_length=1)]
    image: Images
    top_k: TopK | None = None
    labels: Labels | None = None
    return_input: Annotated[Annotated[bool, Field(strict=True)] | None, OfForm] = None
    user: str | None = None


class ImageClass(BaseModel):
    """One class: its label, its place among the model's outputs, and its score, 0 to 1."""

    label: str
    index: int
    score: float


class ImageError(BaseModel):
    """Why one image of several has no classes."""

    message: str
    type: str
    param: str | None
    code: str | None


class ImageClasses(BaseModel):
    """One image: its classes, best first; or, among several images, its error.

    Attributes:
        index: Its place in the request.
        classes: None where there is an error.
        error: None where there are classes.
        input: The image as the model saw it, a `data:` URL of a PNG: upright, resized, cropped.
            Only where `return_input` asked for it.
    """

    index: int
    classes: list[ImageClass] | None = None
    error: ImageError | None = None
    input: str | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> ImageClasses:
        if (self.classes is None) == (self.error is None):
            raise ValueError("an image has classes or an error")
        return self


class ClassificationUsage(BaseModel):
    """What was computed: images that were classified, and pixels they had."""

    images: int
    pixels: int


class ClassificationList(BaseModel):
    """The answer: one entry for each image, in the order of the request."""

    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[ImageClasses]
    usage: ClassificationUsage
