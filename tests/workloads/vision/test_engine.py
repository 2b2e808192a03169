"""Planning decodes and refuses; a batch is one forward."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from math import isclose

import numpy as np
import pytest
from PIL import Image

from headpond.engine import Outcome, Plan
from headpond.errors import EngineFailed, InvalidRequest, PayloadTooLarge
from headpond_workloads.vision.engine.engine import Payload, Prepared, VisionEngine
from headpond_workloads.vision.engine.forward import Floats
from headpond_workloads.vision.items import (
    Classification,
    DescribeItem,
    Description,
    ImageItem,
    Logits,
    Rejected,
    Selection,
    TensorItem,
    VisionItem,
)
from workloads.images.pictures import png_of_zeros, saved, scene
from workloads.vision.conftest import LABELS, MEAN, SIDE, STD

PNG = saved(scene(), "PNG")


def planned(engine: VisionEngine, item: VisionItem) -> Plan[Prepared]:
    plan = engine.plan(item, "tenant")
    assert plan.answer is None
    return plan


def classes(outcome: Outcome[Payload]) -> Classification:
    (payload,) = outcome.outputs
    assert isinstance(payload, Classification)
    return payload


def raw(engine: VisionEngine, item: VisionItem) -> Floats:
    (outcome,) = engine.run([planned(engine, item)])
    (payload,) = outcome.outputs
    assert isinstance(payload, Logits)
    return np.frombuffer(payload.values, "<f4")


def test_an_image_becomes_its_classes_best_first(engine: VisionEngine) -> None:
    plan = planned(engine, ImageItem(data=PNG, selection=Selection(top_k=7)))
    assert plan.shape == {"pixels": 64 * 48, "images": 1, "input_height": 32, "input_width": 32}
    result = classes(engine.run([plan])[0])
    assert result.pixels == 64 * 48
    logits = raw(engine, ImageItem(data=PNG, selection=None)).astype(float)
    expected = np.exp(logits) / np.exp(logits).sum()
    assert [each.index for each in result.classes] == np.argsort(-expected).tolist()
    for each in result.classes:
        assert each.label == LABELS[each.index]
        assert isclose(each.score, expected[each.index], rel_tol=1e-5)
    assert isclose(sum(each.score for each in result.classes), 1.0)


def test_five_classes_unless_another_number_is_asked_for(engine: VisionEngine) -> None:
    for wanted, count in ((None, 5), (1, 1), (7, 7)):
        item = ImageItem(data=PNG, selection=Selection(top_k=wanted))
        assert len(classes(engine.run([planned(engine, item)])[0]).classes) == count


def test_the_image_comes_back_as_the_model_saw_it_where_that_is_asked_for(
    engine: VisionEngine,
) -> None:
    shown, plain = (
        classes(engine.run([planned(engine, ImageItem(data=PNG, shown=shown))])[0])
        for shown in (True, False)
    )
    assert (shown.classes, plain.seen) == (plain.classes, None)
    assert shown.seen is not None
    seen = Image.open(BytesIO(shown.seen))
    assert (seen.format, seen.size, seen.mode) == ("PNG", (32, 32), "RGB")
    pixels = engine.preprocessing.pixels(Image.open(BytesIO(PNG)).convert("RGB"))
    assert np.array_equal(np.asarray(seen), pixels)


def test_scores_are_over_all_labels_whichever_are_asked_for(engine: VisionEngine) -> None:
    chosen = ImageItem(data=PNG, selection=Selection(labels=("gnu", "bee")))
    every = ImageItem(data=PNG, selection=Selection(top_k=7))
    few, all_of_them = map(classes, engine.run([planned(engine, each) for each in (chosen, every)]))
    assert {each.index for each in few.classes} == {1, 4, 6}
    assert few.classes == tuple(each for each in all_of_them.classes if each.index in (1, 4, 6))


@pytest.mark.parametrize(
    ("selection", "param"),
    [
        (Selection(top_k=0), "top_k"),
        (Selection(top_k=8), "top_k"),
        (Selection(labels=("ant", "unicorn")), "labels.1"),
    ],
)
def test_what_the_model_has_not_is_refused_though_the_image_is_optional(
    engine: VisionEngine, selection: Selection, param: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        engine.plan(ImageItem(data=PNG, selection=selection, optional=True), "tenant")
    assert refusal.value.param == param


def test_an_image_that_cannot_be_read_refuses_its_call(engine: VisionEngine) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        engine.plan(ImageItem(data=PNG[:99], param="image.2"), "tenant")
    assert refusal.value.param == "image.2"


def test_an_optional_image_that_cannot_be_read_is_answered(engine: VisionEngine) -> None:
    for data, kind in ((PNG[:99], InvalidRequest), (png_of_zeros(12_000), PayloadTooLarge)):
        answer = engine.plan(ImageItem(data=data, optional=True, param="image.1"), "t").answer
        assert answer is not None
        (rejected,) = answer.outputs
        assert isinstance(rejected, Rejected)
        assert type(rejected.error) is kind
        assert rejected.error.param == "image.1"


def test_the_bundle_may_allow_fewer_pixels(engine: VisionEngine) -> None:
    tight = replace(engine, max_pixels=64 * 48 - 1)
    planned(engine, ImageItem(data=PNG))
    with pytest.raises(PayloadTooLarge, match="3071 are allowed"):
        tight.plan(ImageItem(data=PNG), "tenant")


def test_a_tensor_is_the_models_own_input(engine: VisionEngine) -> None:
    pixels = planned(engine, ImageItem(data=PNG)).prepared.values
    mean, std = (np.asarray(each, np.float32) for each in (MEAN, STD))
    values = ((pixels / np.float32(255) - mean) / std).astype("<f4")
    expected = raw(engine, ImageItem(data=PNG, selection=None))
    rows, columns = (SIDE, SIDE, 3), (3, SIDE, SIDE)
    for item in (
        TensorItem(shape=rows, dtype="uint8", data=pixels.tobytes()),
        TensorItem(shape=rows, dtype="float32", data=values.tobytes()),
        TensorItem(
            shape=columns,
            dtype="float32",
            data=values.transpose(2, 0, 1).tobytes(),
        ),
    ):
        assert np.abs(raw(engine, item) - expected).max() < 1e-4


def test_tensors_and_images_share_a_batch(engine: VisionEngine) -> None:
    zeros = np.zeros((SIDE, SIDE, 3), "<f4").tobytes()
    tensor = TensorItem(
        shape=(SIDE, SIDE, 3),
        dtype="float32",
        data=zeros,
        selection=Selection(top_k=2),
    )
    plans = [planned(engine, each) for each in (ImageItem(data=PNG), tensor, ImageItem(data=PNG))]
    assert len({plan.key for plan in plans}) == 1
    first, second, third = map(classes, engine.run(plans))
    assert first == third
    assert len(second.classes) == 2
    assert second.pixels == 0
    # All outputs of this network are zero for a zero input.
    assert isclose(second.classes[0].score, 1 / len(LABELS), rel_tol=1e-6)
    assert [each.index for each in second.classes] == [0, 1]


NAN = np.full((SIDE, SIDE, 3), np.nan, "<f4").tobytes()
HUGE = np.full((SIDE, SIDE, 3), 3e38, "<f4").tobytes()


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"shape": (SIDE, SIDE)}, "inputs.0.shape"),
        ({"shape": (SIDE, 3, SIDE)}, "inputs.0.shape"),
        ({"shape": (-1, SIDE, 3)}, "inputs.0.shape"),
        ({"data": NAN[:-1]}, "inputs.0.data"),
        ({"data": NAN}, "inputs.0.data"),
        ({"data": HUGE}, "inputs.0.data"),
        ({"dtype": "uint8"}, "inputs.0.data"),
    ],
)
def test_a_tensor_of_another_shape_is_refused(
    engine: VisionEngine, changes: dict[str, object], param: str
) -> None:
    fine = TensorItem(shape=(SIDE, SIDE, 3), dtype="float32", data=bytes(len(NAN)))
    planned(engine, fine)
    with pytest.raises(InvalidRequest) as refusal:
        engine.plan(replace(fine, **changes), "tenant")  # type: ignore[arg-type]
    assert refusal.value.param == param


def test_the_model_says_what_it_is(engine: VisionEngine) -> None:
    answer = engine.plan(DescribeItem(), "tenant").answer
    assert answer is not None
    (description,) = answer.outputs
    assert isinstance(description, Description)
    assert description.labels == LABELS
    assert (description.input_height, description.input_width) == (SIDE, SIDE)
    assert description.max_batch_images == engine.budget


class PoisonedForward:
    """Gives NaN for images that begin with white."""

    takes_pixels = True
    max_batch = None

    def __call__(self, images: Floats, *, alone: bool = False) -> Floats:
        logits = np.zeros((len(images), len(LABELS)), np.float32)
        logits[images[:, 0, 0, 0] == 255] = np.nan
        return logits


def test_outputs_that_are_not_finite_fail_alone(engine: VisionEngine) -> None:
    poisoned = replace(engine, forward=PoisonedForward())
    white, black = (bytes([value]) * (SIDE * SIDE * 3) for value in (255, 0))
    items = [
        TensorItem(
            shape=(SIDE, SIDE, 3),
            dtype="uint8",
            data=data,
            selection=Selection(),
        )
        for data in (black, white, black)
    ]
    first, second, third = poisoned.run([planned(poisoned, item) for item in items])
    assert isinstance(second.error, EngineFailed)
    assert second.outputs == ()
    assert classes(first) == classes(third)


def test_lanes_compute_beside_each_other(engine: VisionEngine) -> None:
    assert engine.lanes == 2
    items = [ImageItem(data=saved(scene(seed=at), "PNG")) for at in range(8)]
    expected = [engine.run([engine.plan(item, "tenant")])[0] for item in items]
    with ThreadPoolExecutor(engine.lanes) as pool:
        plans = list(pool.map(lambda item: engine.plan(item, "tenant"), items * 5))
        outcomes = pool.map(lambda plan: engine.run([plan])[0], plans)
        assert list(outcomes) == expected * 5
