from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from headpond.engine import Quantum
from headpond.errors import ContextLengthExceeded, InvalidRequest
from headpond.units import Work
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.items import (
    ChosenToken,
    GenerationItem,
    Message,
    Prompt,
    Sampling,
    TextDelta,
)

if TYPE_CHECKING:
    from workloads.generation.conftest import Drive, Run, Tiny

GREEDY = Sampling(temperature=0.0)
PROMPT = tuple((at * 11 + 3) % 390 for at in range(90))


def item(prompt: Prompt | tuple[int, ...], count: int = 5, **more: object) -> GenerationItem:
    given = prompt if isinstance(prompt, Prompt) else Prompt(token_ids=prompt)
    return GenerationItem(prompt=given, max_output_tokens=count, sampling=GREEDY, **more)  # type: ignore[arg-type]


def given_back(run: Run) -> list[TextDelta]:
    return [delta for delta in run.deltas if delta.is_prompt]


def generated(run: Run) -> list[int]:
    return [each for delta in run.deltas if not delta.is_prompt for each in delta.token_ids]


def entries(run: Run) -> list[ChosenToken]:
    return [entry for delta in given_back(run) for entry in delta.logprobs]


def expected_logprobs(tiny: Tiny, token_ids: tuple[int, ...]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = tiny.reference(torch.tensor([token_ids])).logits[0]
    return logits.log_softmax(dim=-1)


@pytest.mark.parametrize("chunk", [512, 64, 7])
@pytest.mark.parametrize("preempt_every", [0, 2])
def test_each_token_of_the_prompt_has_its_probability(
    any_tiny: Tiny, drive: Drive, chunk: int, preempt_every: int
) -> None:
    engine = any_tiny.engine()
    drive(engine, [item(PROMPT)])  # what the cache holds must not be missing below
    items = [item(PROMPT, prompt_logprobs=2, logprobs=1), item(PROMPT[:20])]
    run, other = drive(engine, items, chunk=chunk, preempt_every=preempt_every)
    expected = expected_logprobs(any_tiny, PROMPT)
    found = entries(run)
    assert [entry.chosen.token_id for entry in found] == list(PROMPT)
    assert [each for delta in given_back(run) for each in delta.token_ids] == list(PROMPT)
    assert found[0].chosen.logprob is None
    assert found[0].top == ()
    for at, entry in enumerate(found[1:]):
        assert entry.chosen.logprob == pytest.approx(float(expected[at, PROMPT[at + 1]]), abs=1e-3)
        values, likeliest = expected[at].topk(2)
        assert [each.token_id for each in entry.top] == likeliest.tolist()
        assert [each.logprob for each in entry.top] == pytest.approx(values.tolist(), abs=1e-3)
    assert [delta.text for delta in given_back(run)] == [""] * len(given_back(run))
    assert generated(run) == any_tiny.greedy(PROMPT, 5)
    assert other.output_ids == any_tiny.greedy(PROMPT[:20], 5)


def test_a_prompt_comes_back_before_the_output(tiny: Tiny, drive: Drive) -> None:
    engine = tiny.engine()
    text = "def area(width):<|im_end|>\n"
    for _ in range(2):  # the second time out of the cache
        (run,) = drive(engine, [item(Prompt(text=text), 4, echo=True)])
        (first, *rest) = run.deltas
        assert (first.is_prompt, first.text, first.logprobs) == (True, text, ())
        assert list(first.token_ids) == tiny.tokenizer.encode(text)
        assert not any(delta.is_prompt for delta in rest)
        assert run.deltas[-1].usage is not None
        assert run.deltas[-1].usage.completion_tokens == 4


def test_a_prompt_without_a_text_is_spelled(tiny: Tiny, drive: Drive) -> None:
    engine = tiny.engine()
    token_ids = tuple(tiny.tokenizer.encode("Grüße<|im_end|>"))
    messages = (Message(role="user", content="Grüße"),)
    runs = drive(
        engine,
        [item(token_ids, echo=True), item(Prompt(messages=messages), echo=True)],
    )
    assert runs[0].deltas[0].text == "Grüße<|im_end|>"
    assert runs[1].deltas[0].text == ("<|im_start|>user\nGrüße<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("chunk", [512, 2])
@pytest.mark.parametrize("given_as_text", [True, False])
def test_control_tokens_of_a_prompt_are_spelled(
    tiny: Tiny, drive: Drive, chunk: int, given_as_text: bool
) -> None:
    text = "<|im_start|>user x<|im_end|>y"
    prompt = Prompt(text=text) if given_as_text else tuple(tiny.tokenizer.encode(text))
    scoring = item(prompt, 0, echo=True, prompt_logprobs=1)
    (run,) = drive(tiny.engine(), [scoring], chunk=chunk)
    raw = [entry.chosen.raw for entry in entries(run)]
    assert b"".join(raw).decode() == text == "".join(delta.text for delta in given_back(run))
    assert (raw[0], raw[-2]) == (b"<|im_start|>", b"<|im_end|>")


@pytest.mark.parametrize("tokens", [1, 2, 64, 90])
def test_a_prompt_may_be_scored_and_nothing_generated(
    tiny: Tiny, drive: Drive, tokens: int
) -> None:
    engine = tiny.engine()
    scoring = item(PROMPT[:tokens], 0, echo=True, prompt_logprobs=1)
    (run,) = drive(engine, [scoring], chunk=32)
    assert [entry.chosen.token_id for entry in entries(run)] == list(PROMPT[:tokens])
    assert run.deltas[-1].finish_reason == "length"
    assert run.deltas[-1].token_ids == ()
    assert run.last is not None
    assert run.last.finished == Work(input_tokens=tokens)
    assert engine.free_blocks == 64


def test_a_prompt_that_fills_the_context_can_be_scored(engine: GenerationEngine) -> None:
    longest = tuple(at % 390 for at in range(160))
    assert engine.plan(item(longest, 0, echo=True), "t").shape["max_output_tokens"] == 0
    with pytest.raises(ContextLengthExceeded):
        engine.plan(item((*longest, 1), 0, echo=True), "t")
    with pytest.raises(ContextLengthExceeded):
        engine.plan(item(longest, 1, echo=True), "t")
    with pytest.raises(InvalidRequest, match="at least 1"):
        engine.plan(item(PROMPT, 0), "t")


def test_a_long_prompt_is_scored_in_small_pieces(engine: GenerationEngine) -> None:
    slot = engine.start(engine.plan(item(PROMPT, prompt_logprobs=0), "t"))
    units = [engine.step([Quantum(slot=slot, units=90)])[0].units for _ in range(2)]
    assert units == [64, 26]
    engine.release(slot)


def test_prompts_of_others_are_as_ever_beside_a_scored_one(tiny: Tiny, drive: Drive) -> None:
    engine = tiny.engine(speculation={"method": "prompt_lookup", "max_rows": 100})
    items = [
        item(PROMPT[:30] * 2, 20, prompt_logprobs=0),
        item(PROMPT[:9] * 3, 20),
        item(PROMPT[:50], 20, echo=True, prompt_logprobs=1),
    ]
    runs = drive(engine, items, stagger=2, chunk=20)
    for run, each in zip(runs, items, strict=True):
        token_ids = each.prompt.token_ids
        assert token_ids is not None
        assert generated(run) == tiny.greedy(token_ids, 20)
