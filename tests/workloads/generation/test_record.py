from __future__ import annotations

import subprocess
import sys

import pytest

from headpond.units import Work
from headpond_workloads.generation.record import record


def shape(prompt: int, output: int, cached: int = 0) -> dict[str, int]:
    return {"prompt_tokens": prompt, "max_output_tokens": output, "cached_tokens": cached}


def test_cached_prompt_tokens_cost_nothing_but_the_last() -> None:
    assert record.cost(shape(100, 20)) == Work(input_tokens=100, output_tokens=20)
    assert record.cost(shape(100, 20, 64)) == Work(input_tokens=36, output_tokens=20)
    assert record.cost(shape(100, 20, 100)) == Work(input_tokens=1, output_tokens=20)


def test_state_grows_by_whole_blocks() -> None:
    symbols = {
        "layers": 30,
        "kv_heads": 3,
        "head_dim": 64,
        "context_tokens": 8192,
        "vocab_tokens": 49152,
        "weight_bytes": 1,
        "layer_weights": 1,
        "head_weights": 1,
        "read_bytes": 1,
        "block_tokens": 16,
    }
    state = record.bind(symbols, "bfloat16")
    kv_per_token = 30 * 2 * 3 * 64 * 2
    one = state.request_bytes(shape(1, 8), 1)
    assert one == state.request_bytes(shape(1, 8), 16)
    assert state.request_bytes(shape(1, 8), 17) - one == 16 * (kv_per_token + 16)


@pytest.mark.parametrize("heavy", ["torch", "transformers", "ray"])
def test_the_record_loads_without_the_engine(heavy: str) -> None:
    code = f"import sys, headpond_workloads.generation.record; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
