"""A bundle's fixtures: small images, and samples of what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from headpond.bundle.section import Section, read_section
from headpond.encoded import file_bytes
from headpond.engine import Json
from headpond.errors import BundleError, InvalidRequest
from headpond_workloads.vision.engine.forward import Floats
from headpond_workloads.vision.engine.labels import Labels
from headpond_workloads.vision.items import Selection

_SAMPLES = 32


class _Given(Section):
    image: Annotated[str, Field(min_length=1)]
    top_k: Annotated[int, Field(ge=1)] = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class FixtureImage:
    """What a fixture gives.

    Attributes:
        data: The image's file.
        top_k: How many of its labels are fixed, best first.
    """

    data: bytes
    top_k: int


def image_of_fixture(given: Mapping[str, Json]) -> FixtureImage:
    """Return the image, in base64 as `image`, and the optional `top_k` of a fixture.

    Raises:
        BundleError: They are not there, or of a wrong kind.
    """
    fixture = read_section(_Given, given, "fixtures.given")
    try:
        data = file_bytes(fixture.image, "fixtures.given.image", "image")
    except InvalidRequest as error:
        raise BundleError(error.message, param=error.param) from None
    return FixtureImage(data=data, top_k=fixture.top_k)


def observation(
    fixture: FixtureImage, normalised: Floats, logits: Floats, labels: Labels
) -> Mapping[str, Json]:
    """Return what the record's contracts compare: evenly spread samples, and the labels."""
    choice = labels.choice(Selection(top_k=fixture.top_k))
    return {
        "pixels": _samples(normalised),
        "logits": _samples(logits),
        "labels": [each.label for each in labels.best(logits, choice)],
    }


def _samples(values: Floats) -> list[Json]:
    places = np.linspace(0, values.size - 1, min(_SAMPLES, values.size)).astype(np.intp)
    return [round(float(value), 4) for value in values.reshape(-1)[places]]
