from __future__ import annotations

import subprocess
import sys

import pytest

from headpond.record import Formed
from headpond.units import Work
from headpond_workloads.embedding.record import record

SYMBOLS = {
    "layers": 6,
    "hidden": 384,
    "heads": 12,
    "context_tokens": 256,
    "dimensions": 384,
    "weight_bytes": 1,
}


def test_a_text_costs_its_tokens() -> None:
    assert record.cost({"tokens": 37}) == Work(input_tokens=37)


def test_a_batch_holds_the_activations_of_its_tokens() -> None:
    state = record.bind(SYMBOLS, "bfloat16")
    assert state.request_bytes({"tokens": 10}, 10) == 10 * 384 * 8 * 2


def test_texts_are_batched_by_tokens() -> None:
    assert record.batching == Formed(axis="tokens", budget=16_384, bucket_by=("bucket",))
    assert record.request.max_items == 2048
    assert record.request.dims[0].limit == "context_tokens"


@pytest.mark.parametrize("heavy", ["torch", "transformers", "ray", "numpy"])
def test_the_record_loads_without_the_engine(heavy: str) -> None:
    code = f"import sys, headpond_workloads.embedding.record; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
