from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from headpond_workloads.generation.engine.drawing import candidates, draw_rows
from headpond_workloads.generation.engine.logits import Logits
from headpond_workloads.generation.engine.native.library import library
from headpond_workloads.generation.engine.native.logits import NativeLogits
from headpond_workloads.generation.engine.sampler import (
    Draw,
    Drawn,
    SamplerState,
    sample,
)
from headpond_workloads.generation.engine.torch_logits import TorchLogits
from headpond_workloads.generation.items import Sampling
from headpond_workloads.native.library import NativeUnavailable

VOCAB = 1500


def logits_of(seed: int, rows: int = 1, spread: float = 3.0) -> Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * spread


def draw(sampling: Sampling, position: int = 0, logprobs: int | None = None) -> Draw:
    return Draw(state=SamplerState(sampling, ()), position=position, logprobs=logprobs)


def torch_logits(rows: Tensor) -> TorchLogits:
    return TorchLogits(rows.clone())


def native_logits(rows: Tensor) -> NativeLogits:
    try:
        library()
    except NativeUnavailable as reason:
        pytest.skip(f"the native forward can't run here: {reason}")
    return NativeLogits(rows.clone().numpy())


Make = Callable[[Tensor], Logits]


@pytest.fixture(params=[torch_logits, native_logits])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


def drawn_ids(logits: Logits, draws: list[Draw]) -> list[int | None]:
    return [each.token_id for each in sample(logits, draws)]


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """What a row of logits comes to after the filters."""
    ((_, token_ids, weights),) = candidates(logits, [sampling])
    found = torch.zeros(logits.shape[-1], dtype=torch.float64)
    return found.index_put((token_ids[0],), weights[0] / weights.sum()).float()


FILTERS = [
    Sampling(temperature=0.7),
    Sampling(temperature=1.3, top_k=20),
    Sampling(top_p=0.9),
    Sampling(top_p=0.0),
    Sampling(temperature=2.5, top_p=0.999),
    Sampling(min_p=0.05),
    Sampling(temperature=50.0, min_p=0.9),
    Sampling(temperature=0.9, top_k=200, top_p=0.8, min_p=0.02),
    Sampling(top_k=10_000, top_p=0.5),
]


@pytest.mark.parametrize("sampling", FILTERS, ids=str)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_distribution_is_that_of_transformers(sampling: Sampling, seed: int) -> None:
    logits = logits_of(seed)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    expected = warpers(torch.zeros(1, 1, dtype=torch.long), logits.clone()).softmax(-1)[0]  # type: ignore[arg-type]
    found = distribution(logits / sampling.temperature, sampling)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sampling", [Sampling(seed=3), Sampling(seed=3, top_p=0.95)], ids=str)
def test_frequencies_follow_the_distribution(sampling: Sampling, make: Make) -> None:
    logits = logits_of(5)[:, :6]
    state = SamplerState(sampling, ())
    draws = [Draw(state=state, position=at, logprobs=None) for at in range(20_000)]
    counts = torch.bincount(
        torch.tensor(drawn_ids(make(logits.expand(20_000, -1)), draws)), minlength=6
    )
    expected = distribution(logits, sampling)
    torch.testing.assert_close(counts / 20_000, expected, rtol=0, atol=0.015)


def test_a_seed_gives_the_same_tokens_alone_and_in_any_batch(make: Make) -> None:
    rows = logits_of(9, rows=12)
    mixed = [
        FILTERS[at % len(FILTERS)] if at != 4 else Sampling(seed=42, top_p=0.9) for at in range(12)
    ]
    alone = [drawn_ids(make(rows[4:5]), [draw(mixed[4], at)]) for at in range(30)]
    together = [drawn_ids(make(rows), [draw(each, at) for each in mixed])[4:5] for at in range(30)]
    assert alone == together
    assert len({tuple(each) for each in alone}) > 3


def test_of_equals_those_with_the_lowest_ids_are_kept() -> None:
    for size in (40, VOCAB):
        rows = torch.zeros(4, size)
        assert draw_rows(rows, [Sampling(top_k=4)] * 4, [0.1, 0.3, 0.6, 0.9]) == [0, 1, 2, 3]


def test_the_last_random_number_draws_a_token_that_is_allowed() -> None:
    rows = torch.full((2, VOCAB), -torch.inf)
    rows[:, 3:5] = 0.0
    assert draw_rows(rows, [Sampling(), Sampling(top_k=9)], [1 - 2**-53] * 2) == [4, 4]


def test_without_a_seed_every_request_draws_its_own(make: Make) -> None:
    logits = logits_of(1, spread=0.0)
    assert len({drawn_ids(make(logits), [draw(Sampling())])[0] for _ in range(20)}) > 5


@pytest.mark.parametrize("temperature", [0.0, 1e-7])
def test_no_temperature_is_greedy(temperature: float, make: Make) -> None:
    logits = logits_of(4, rows=3)
    draws = [draw(Sampling(temperature=temperature, seed=1)) for _ in range(3)]
    assert drawn_ids(make(logits), draws) == logits.argmax(-1).tolist()


def test_repetition_penalty_is_that_of_transformers(make: Make) -> None:
    logits = logits_of(6)
    prompt, output = [3, 4, 4, 9], [7, 3, 7]
    state = SamplerState(Sampling(repetition_penalty=1.7), prompt)
    for token_id in output:
        state.remember(token_id)
    seen = torch.tensor([prompt + output])
    expected = RepetitionPenaltyLogitsProcessor(1.7)(seen, logits.clone())[0]
    adjusted = make(logits)
    state.adjust(adjusted, 0)
    assert adjusted.values()[0].tolist() == expected.tolist()


def test_presence_and_frequency_count_generated_tokens_only(make: Make) -> None:
    state = SamplerState(Sampling(presence_penalty=0.5, frequency_penalty=0.25), [1, 2, 3])
    for token_id in (5, 6, 5):
        state.remember(token_id)
    adjusted = make(torch.zeros(2, 8))
    state.adjust(adjusted, 1)
    assert adjusted.values()[0].tolist() == [0] * 8
    assert adjusted.values()[1].tolist() == [0, 0, 0, 0, 0, -1.0, -0.75, 0]


def test_a_bias_is_added_to_the_logits(make: Make) -> None:
    adjusted = make(torch.zeros(1, 4))
    SamplerState(Sampling(logit_bias={1: 100.0, 3: -100.0}), ()).adjust(adjusted, 0)
    assert adjusted.values()[0].tolist() == [0, 100.0, 0, -100.0]
    banned = logits_of(2)
    best = int(banned.argmax())
    assert drawn_ids(make(banned), [draw(Sampling(temperature=0, logit_bias={best: -100.0}))]) != [
        best
    ]


def test_logprobs_are_those_of_the_model_before_temperature_and_penalties(make: Make) -> None:
    logits = logits_of(8)
    expected = logits[0].log_softmax(-1)
    sampling = Sampling(temperature=0.1, seed=1, logit_bias={2: 50.0}, top_k=3)
    (drawn,) = sample(make(logits), [draw(sampling, logprobs=4)])
    assert drawn.token_id == 2
    assert drawn.logprob == pytest.approx(float(expected[2]), rel=1e-5)
    values, token_ids = expected.topk(4)
    assert [token_id for token_id, _ in drawn.top] == token_ids.tolist()
    assert [value for _, value in drawn.top] == pytest.approx(values.tolist(), rel=1e-5)


def test_no_alternatives_can_be_asked_for(make: Make) -> None:
    logits = logits_of(8)
    (drawn,) = sample(make(logits), [draw(Sampling(temperature=0), logprobs=0)])
    assert drawn.top == ()
    assert drawn.logprob == pytest.approx(float(logits[0].log_softmax(-1).max()), rel=1e-5)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0), Sampling(seed=1, top_p=0.9)], ids=str
)
def test_logits_that_are_not_finite_spoil_their_own_row_only(
    poison: float, sampling: Sampling, make: Make
) -> None:
    logits = logits_of(3, rows=3)
    clean = drawn_ids(make(logits), [draw(sampling) for _ in range(3)])
    logits[1, 17] = poison
    drawn = sample(make(logits), [draw(sampling, logprobs=2) for _ in range(3)])
    assert [each.token_id for each in drawn] == [clean[0], None, clean[2]]
    assert drawn[1] == Drawn(token_id=None)
