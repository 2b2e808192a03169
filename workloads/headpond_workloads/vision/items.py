"""What the vision workload asks of its engine, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headpond.errors import HeadpondError

TensorType = Literal["uint8", "float32"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Which classes of an image are wanted, best first.

    Attributes:
        top_k: The most classes to give; None for as many as a person reads, see the engine.
        labels: Names to choose among; None for all of the model's.
    """

    top_k: int | None = None
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageItem:
    """One image to be classified.

    Attributes:
        data: The file: PNG, JPEG, WEBP, GIF or BMP.
        selection: Which classes are wanted; None for the model's raw outputs.
        optional: Whether an image that can't be read is answered with `Rejected`, so that
            the others of its call go on; else the call is refused.
        shown: Whether the classes come with the image as the model saw it.
        labelled: Whether raw outputs come with the names of the classes.
        param: The request field it came from, for messages.
    """

    data: bytes
    selection: Selection | None = Selection()
    optional: bool = False
    shown: bool = False
    labelled: bool = False
    param: str = "image"


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorItem:
    """One input tensor of the model, without a batch dimension.

    Attributes:
        shape: `(height, width, 3)` or `(3, height, width)`.
        dtype: `uint8` for the model's own pixels (cropped to its size, 0 to 255, not
            normalised), `float32` for the same after normalisation.
        data: Values in row-major order, little-endian.
        selection: Which classes are wanted; None for the model's raw outputs.
        labelled: Whether raw outputs come with the names of the classes.
        param: The request field it came from, for messages.
    """

    shape: tuple[int, ...]
    dtype: TensorType
    data: bytes
    selection: Selection | None = None
    labelled: bool = False
    param: str = "inputs.0"


@dataclass(frozen=True, kw_only=True, slots=True)
class DescribeItem:
    """A question for what the model is; answered while planning, with a `Description`."""


VisionItem = ImageItem | TensorItem | DescribeItem


@dataclass(frozen=True, slots=True)
class ClassScore:
    """One class of an image.

    Attributes:
        label: Its name.
        index: Its place among the model's outputs.
        score: From 0 to 1, over all of the model's classes, whichever were asked for.
    """

    label: str
    index: int
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Classification:
    """The classes of one image, best first; ties by index.

    Attributes:
        classes: At least one.
        pixels: Pixels of the image as its header says; 0 for a tensor.
        seen: A PNG of the image as the model saw it, where that was asked for.
    """

    classes: tuple[ClassScore, ...]
    pixels: int
    seen: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Logits:
    """The raw outputs of one image.

    Attributes:
        values: Little-endian float32, one for each label.
        labels: The names of the classes, where they were asked for.
    """

    values: bytes
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """Why an optional image has no classes; others of its call may have."""

    error: HeadpondError


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """What a model is.

    Attributes:
        model: `name@version` of the bundle.
        digest: The bundle's digest.
        dtype: What it computes in.
        input_height: Rows of its input.
        input_width: Columns of its input.
        labels: Names of its classes, in the order of the output.
        max_pixels: The largest image that is decoded.
        max_batch_images: Images in one batch.
    """

    model: str
    digest: str
    dtype: str
    input_height: int
    input_width: int
    labels: tuple[str, ...]
    max_pixels: int
    max_batch_images: int
