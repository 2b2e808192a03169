from __future__ import annotations

import subprocess
import sys

import pytest

from headpond.units import Work
from headpond_workloads.vision.record import record


def test_work_is_what_is_decoded_and_what_is_computed() -> None:
    shape = {"pixels": 640 * 480, "images": 1, "input_height": 224, "input_width": 224}
    assert record.cost(shape) == Work(pixels=640 * 480, images=1)
    assert record.cost(shape | {"pixels": 0}) == Work(images=1)
    small, large = (
        record.cost(shape | {"pixels": pixels}).weigh(record.units_by_name)
        for pixels in (640 * 480, 8_000_000)
    )
    assert 1.0 < small < 1.2
    assert 2.0 < large < 4.0


def test_state_is_that_of_the_input_whatever_was_decoded() -> None:
    symbols = {"labels": 1000, "input_height": 224, "input_width": 224, "weight_bytes": 1}
    state = record.bind(symbols, "float32")
    shape = {"pixels": 300_000, "images": 1, "input_height": 224, "input_width": 224}
    held = state.request_bytes(shape, 1)
    assert held == 224 * 224 * (3 + 32) * 4
    assert state.request_bytes(shape | {"pixels": 40_000_000}, 1) == held


@pytest.mark.parametrize("heavy", ["torch", "transformers", "ray", "numpy", "PIL"])
def test_the_record_loads_without_the_engine(heavy: str) -> None:
    code = f"import sys, headpond_workloads.vision.record; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
