"""What the platform derives from the declaration."""

from __future__ import annotations

import pytest

from headpond.admission.limits import Limits
from headpond.errors import InvalidRequest
from headpond.planner import plan_memory
from headpond.units import Work
from headpond_workloads.diffusion.record import cost, record
from workloads.diffusion.brush import MANIFEST, MOST_PIXELS

SHAPE = {"pixels": 1024, "latents": 16, "steps": 12, "forwards": 10, "passes": 2, "sources": 0}
LIMITS = Limits(record, MANIFEST.model, MANIFEST.limits)


def test_work_is_every_pixel_as_often_as_it_is_computed() -> None:
    assert cost(SHAPE) == Work(pixel_steps=1024 * 10 * 2)
    assert cost({**SHAPE, "passes": 1, "forwards": 3}) == Work(pixel_steps=1024 * 3)


def test_state_is_that_of_one_picture_however_far_it_is() -> None:
    state = record.bind(MANIFEST.model, "float32")
    first, last = state.request_bytes(SHAPE, 1), state.request_bytes(SHAPE, 10)
    latents, history, conditioning, picture = 16 * 4 * 4, 16 * 4 * 4, 2 * 8 * 4, 1024 * 3
    assert first == last == latents + history + conditioning + picture + 2 * 16 * 8 * 4
    assert state.request_bytes({**SHAPE, "sources": 2}, 1) == first + 2 * latents


@pytest.mark.parametrize(
    ("dim", "most", "param"),
    [
        ("pixels", MOST_PIXELS, "size"),
        ("steps", 1000, "num_inference_steps"),
        ("forwards", 1001, "num_inference_steps"),
        ("latents", MOST_PIXELS // 64, "size"),
    ],
)
def test_limits_name_the_field(dim: str, most: int, param: str) -> None:
    LIMITS.check_shape({**SHAPE, dim: most})
    with pytest.raises(InvalidRequest, match=str(most)) as refusal:
        LIMITS.check_shape({**SHAPE, dim: most + 1})
    assert refusal.value.param == param


def test_the_largest_picture_is_planned_for() -> None:
    plan = plan_memory(record, MANIFEST, state_bytes=2**20, available_bytes=2**30)
    largest = {"pixels": MOST_PIXELS, "latents": 64, "passes": 2, "sources": 3}
    largest |= {"steps": 1000, "forwards": 1001}
    state = record.bind(MANIFEST.model, "float32")
    assert plan.largest_request_bytes == state.request_bytes(largest, 1)
    assert plan.static_bytes == 2
