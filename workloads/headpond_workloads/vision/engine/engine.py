"""The engine of image classification: decode while planning, then one forward a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headpond.engine import Immediate, Json, Outcome, Plan
from headpond.errors import EngineFailed, InvalidRequest
from headpond_workloads.images.decoder import decode
from headpond_workloads.vision.engine.company import Company
from headpond_workloads.vision.engine.fixtures import image_of_fixture, observation
from headpond_workloads.vision.engine.forward import Floats, Forward
from headpond_workloads.vision.engine.labels import Choice, Labels
from headpond_workloads.vision.engine.preprocessing import Preprocessing, as_png
from headpond_workloads.vision.engine.tensors import Values, read_tensor, stack
from headpond_workloads.vision.items import (
    Classification,
    DescribeItem,
    Description,
    ImageItem,
    Logits,
    Rejected,
    TensorItem,
    VisionItem,
)

Payload = Classification | Logits


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """An image on its way to the forward.

    Attributes:
        values: The model's pixels, or normalised values.
        choice: The classes that are wanted; None for the raw outputs.
        pixels: What was decoded; 0 for a tensor.
        labelled: Whether raw outputs come with the names of the classes.
        seen: A PNG of the model's pixels, where it was asked for.
    """

    values: Values
    choice: Choice | None
    pixels: int
    labelled: bool = False
    seen: bytes | None = None


_NOTHING = Prepared(values=np.empty((0, 0, 3), np.uint8), choice=None, pixels=0)


@dataclass(frozen=True, kw_only=True)
class VisionEngine:
    """Classifies images in formed batches.

    Attributes:
        forward: The network.
        preprocessing: The input contract.
        labels: The names of the outputs.
        max_pixels: The largest image that is decoded.
        lanes: Batches at once.
        express_lanes: Batches of small calls beside these.
        budget: Images in a batch.
        symbols: What the model is, in the record's symbols.
        description: The answer to a `DescribeItem`.
        company: What it works on at the moment.
    """

    forward: Forward
    preprocessing: Preprocessing
    labels: Labels
    max_pixels: int
    lanes: int
    express_lanes: int
    budget: int
    symbols: Mapping[str, int]
    description: Description
    company: Company = field(default_factory=Company)

    def plan(self, item: VisionItem, namespace: str) -> Plan[Prepared]:
        """Decode and preprocess an image, or check a tensor.

        Raises:
            InvalidRequest: The image can't be read, or the model can't do what is asked.
            PayloadTooLarge: The image has too many pixels.
        """
        if isinstance(item, DescribeItem):
            return _answered(self.description)
        choice = None if item.selection is None else self.labels.choice(item.selection)
        if isinstance(item, TensorItem):
            return self._plan(self._given(item, choice))
        try:
            with self.company.join():
                return self._plan(self._decoded(item, choice))
        except InvalidRequest as error:
            if not item.optional:
                raise
            return _answered(Rejected(error=error))

    def run(self, batch: Sequence[Plan[Prepared]]) -> Sequence[Outcome[Payload]]:
        """Compute a batch in one forward; an image whose outputs are not finite fails alone."""
        with self.company.join() as alone:
            # Beside others, more threads for one would only take them away from another.
            logits = self.forward(self._stacked(batch), alone=alone)
        return [self._outcome(plan.prepared, row) for plan, row in zip(batch, logits, strict=True)]

    def tallies(self) -> Mapping[str, int]:
        """Return nothing: the record counts nothing besides."""
        return {}

    def observe(self, given: Mapping[str, Json]) -> Mapping[str, Json]:
        """Classify a fixture's image and return samples of its pixels and logits, and labels.

        Raises:
            BundleError: The fixture has no image.
            HeadpondError: The image can't be classified.
        """
        fixture = image_of_fixture(given)
        item = ImageItem(data=fixture.data, selection=None, param="fixtures.given.image")
        prepared = self._decoded(item, None)
        logits = self.forward(self._stacked([self._plan(prepared)]))[0]
        if not np.isfinite(logits).all():
            raise EngineFailed("the outputs hold NaN or infinity")
        normalised = stack([prepared.values], self.preprocessing, as_pixels=False)
        return observation(fixture, normalised, logits, self.labels)

    def _given(self, item: TensorItem, choice: Choice | None) -> Prepared:
        values = read_tensor(item, self.preprocessing.size)
        return Prepared(values=values, choice=choice, pixels=0, labelled=item.labelled)

    def _decoded(self, item: ImageItem, choice: Choice | None) -> Prepared:
        picture = decode(
            item.data,
            max_pixels=self.max_pixels,
            needed=self.preprocessing.needed,
            param=item.param,
        )
        values = self.preprocessing.pixels(picture.image)
        return Prepared(
            values=values,
            choice=choice,
            pixels=picture.pixels,
            labelled=item.labelled,
            seen=as_png(values) if item.shown else None,
        )

    def _plan(self, prepared: Prepared) -> Plan[Prepared]:
        height, width = self.preprocessing.size.height, self.preprocessing.size.width
        shape = {
            "pixels": prepared.pixels,
            "images": 1,
            "input_height": height,
            "input_width": width,
        }
        return Plan(shape=shape, prepared=prepared, key=(height, width))

    def _stacked(self, batch: Sequence[Plan[Prepared]]) -> Floats:
        values = [plan.prepared.values for plan in batch]
        return stack(values, self.preprocessing, as_pixels=self.forward.takes_pixels)

    def _outcome(self, prepared: Prepared, logits: Floats) -> Outcome[Payload]:
        if not np.isfinite(logits).all():
            return Outcome(error=EngineFailed("the outputs for this image hold NaN or infinity"))
        if prepared.choice is None:
            names = self.labels.names if prepared.labelled else ()
            return Outcome(outputs=(Logits(values=logits.astype("<f4").tobytes(), labels=names),))
        classes = self.labels.best(logits, prepared.choice)
        classified = Classification(classes=classes, pixels=prepared.pixels, seen=prepared.seen)
        return Outcome(outputs=(classified,))


def _answered(answer: Description | Rejected) -> Plan[Prepared]:
    return Plan(shape={}, prepared=_NOTHING, answer=Immediate(outputs=(answer,)))
