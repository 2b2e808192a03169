"""Native drawing against the tensor operations that say what is meant."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond_workloads.generation.engine.drawing import draw_rows
from headpond_workloads.generation.engine.native.library import library
from headpond_workloads.generation.engine.native.logits import NativeLogits
from headpond_workloads.generation.items import Sampling
from headpond_workloads.native.library import NativeUnavailable

try:
    library()
except NativeUnavailable as reason:
    pytest.skip(f"the native forward can't run here: {reason}", allow_module_level=True)


def draw(
    logits: torch.Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]
) -> Sequence[int]:
    return NativeLogits(logits.numpy()).draw(range(len(logits)), samplings, uniforms)


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.05, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.01]),
    top_k=st.sampled_from([0, 1, 7, 50, 5000]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(
        st.tuples(samplings, st.floats(1e-6, 1, exclude_max=True)), min_size=1, max_size=5
    ),
    spread=st.sampled_from([0.3, 4.0, 30.0]),
    vocabulary=st.sampled_from([1, 15, 400, 3000]),
    seed=st.integers(0, 2**31),
)
def test_tokens_are_those_of_the_tensor_operations(
    rows: list[tuple[Sampling, float]], spread: float, vocabulary: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(rows), vocabulary, generator=generator) * spread
    # Masked tokens are ordinary; which of equals a filter keeps, tensor operations leave open.
    logits[:, 3::11] = float("-inf")
    chosen, uniforms = [row[0] for row in rows], [row[1] for row in rows]
    found = draw(logits, chosen, uniforms)
    expected = draw_rows(logits, chosen, uniforms)
    for row, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        # Rounding may move the border between two neighbours, never to another probability.
        assert mine == theirs or near(logits[row], chosen[row], uniforms[row], mine)


def near(logits: torch.Tensor, sampling: Sampling, uniform: float, token: int) -> bool:
    nudges = (uniform - 1e-5, uniform + 1e-5)
    return token in {
        draw_rows(logits.unsqueeze(0), [sampling], [min(max(each, 0.0), 1 - 1e-9)])[0]
        for each in nudges
    }


@pytest.mark.parametrize("seed", range(40))
def test_a_masked_token_is_never_drawn_however_high_the_uniform(seed: int) -> None:
    logits = torch.randn(1, 15, generator=torch.Generator().manual_seed(seed)) * 30
    logits[:, 3::11] = float("-inf")
    (token,) = draw(logits, [Sampling(temperature=1.0, top_k=50)], [1 - 2**-53])
    assert token not in (3, 14)


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, float("-inf")]])
    uniforms = [(at + 0.5) / 1000 for at in range(1000)]
    drawn = draw(logits.expand(1000, -1).contiguous(), [Sampling()] * 1000, uniforms)
    shares = torch.bincount(torch.tensor(drawn), minlength=5) / 1000
    torch.testing.assert_close(shares, logits[0].softmax(-1), atol=1e-3, rtol=0)


def test_of_equals_those_with_the_lowest_ids_are_kept() -> None:
    logits = torch.zeros(4, 40)
    drawn = draw(logits, [Sampling(top_k=4)] * 4, [0.1, 0.3, 0.6, 0.9])
    assert drawn == [0, 1, 2, 3]
