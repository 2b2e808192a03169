from __future__ import annotations

import pytest

from headpond_workloads.generation.engine.blocks import BlockPool, BlockTable
from headpond_workloads.generation.engine.output import OutputWriter
from headpond_workloads.generation.engine.reader import Marks, Reader
from headpond_workloads.generation.engine.sampler import Drawn, SamplerState
from headpond_workloads.generation.engine.sequence import Portion, Prepared, Slot
from headpond_workloads.generation.engine.text import TextStream
from headpond_workloads.generation.engine.tool_syntax import SYNTAXES
from headpond_workloads.generation.engine.vocabulary import Vocabulary
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling, TextDelta
from workloads.generation.conftest import joined_calls, train_tokenizer

TOKENIZER = train_tokenizer()
MARK, END = "<|im_start|>", "<|im_end|>"
VOCABULARY = Vocabulary(TOKENIZER.backend_tokenizer)
SAID = (
    "<think>hm, 東京?</think>Let me see. "
    '<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>'
    '<tool_call>{"name": "look", "arguments": {"at": 2}}</tool_call> done'
)


def start(*, parallel: bool, stop: tuple[str, ...] = ()) -> Slot:
    item = GenerationItem(
        prompt=Prompt(token_ids=(1,)), parallel_tool_calls=parallel, stop=stop, logprobs=0
    )
    return Slot(
        prepared=Prepared(item=item, token_ids=(1,), max_output_tokens=500),
        token_ids=[1],
        prompt_tokens=1,
        table=BlockTable(BlockPool(1), 16),
        sampler=SamplerState(Sampling(), ()),
        text=TextStream(stop),
        reader=Reader(
            syntax=SYNTAXES["hermes"],
            reasoning=Marks(begin="<think>", end="</think>"),
            most_calls=None if parallel else 1,
        ),
    )


def write(slot: Slot, size: int) -> list[TextDelta]:
    """What comes out when `size` tokens are accepted in each step."""
    writer = OutputWriter(VOCABULARY, frozenset({2}))
    drawn = [Drawn(token_id=each) for each in [*TOKENIZER.encode(SAID), 2, 5, 5]]
    deltas: list[TextDelta] = []
    for at in range(0, len(drawn), size):
        deltas.append(writer.generated(slot, drawn[at : at + size]))
        if deltas[-1].finish_reason is not None:
            break
    return deltas


def joined(deltas: list[TextDelta]) -> tuple[object, ...]:
    return (
        "".join(delta.text for delta in deltas),
        "".join(delta.reasoning for delta in deltas),
        joined_calls(call for delta in deltas for call in delta.tool_calls),
        [each for delta in deltas for each in delta.token_ids],
        [entry.chosen.token_id for delta in deltas for entry in delta.logprobs],
        deltas[-1].finish_reason,
        deltas[-1].usage,
    )


@pytest.mark.parametrize("size", [2, 5, 1000])
@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("stop", [(), ("see",), ("done",)])
def test_how_many_tokens_come_at_once_has_no_influence(
    size: int, parallel: bool, stop: tuple[str, ...]
) -> None:
    single = write(start(parallel=parallel, stop=stop), 1)
    assert joined(write(start(parallel=parallel, stop=stop), size)) == joined(single)


@pytest.mark.parametrize(("parallel", "calls"), [(True, 2), (False, 1)])
def test_calls_are_told_from_what_is_said(parallel: bool, calls: int) -> None:
    text, reasoning, found, token_ids, _, reason, usage = joined(write(start(parallel=parallel), 7))
    assert isinstance(text, str)
    assert text == ("Let me see. done" if parallel else "Let me see.")
    assert reasoning == "hm, 東京?"
    assert isinstance(found, list)
    assert [name for name, _ in found] == ["look"] * calls
    assert reason == "tool_calls"
    assert isinstance(token_ids, list)
    # The end token is the last, or what closes the only call; nothing after it counts.
    assert (token_ids[-1] == 2) is parallel
    assert usage is not None


@pytest.mark.parametrize(
    ("added", "text", "expected"),
    [
        ("", f"{MARK}a{MARK}", [MARK, "a", MARK]),
        (MARK, f"a{MARK}", ["", "a", MARK]),
        (MARK, f"{MARK}a", ["", MARK, "a"]),
        (MARK, END * 6, ["", *[END] * 6]),
    ],
)
@pytest.mark.parametrize("first", [1, 9])
def test_control_tokens_are_spelled_where_the_text_has_them(
    added: str, text: str, expected: list[str], first: int
) -> None:
    token_ids = tuple(TOKENIZER.encode(added + text))
    item = GenerationItem(prompt=Prompt(text=text), echo=True, prompt_logprobs=0)
    slot = Slot(
        prepared=Prepared(item=item, token_ids=token_ids, max_output_tokens=0),
        token_ids=list(token_ids),
        prompt_tokens=len(token_ids),
        table=BlockTable(BlockPool(1), 16),
        sampler=SamplerState(Sampling(), ()),
        text=TextStream(()),
        reader=None,
    )
    writer = OutputWriter(VOCABULARY, frozenset())
    scores = [Drawn(token_id=each, logprob=-1.0) for each in token_ids[1:]]
    begin = Portion(slot=slot, start=0, end=min(first, len(token_ids)))
    rest = Portion(slot=slot, start=begin.end, end=len(token_ids))
    deltas = [*writer.prompt(begin, scores[:first]), *writer.prompt(rest, scores[first:])]
    entries = [entry for delta in deltas for entry in delta.logprobs]
    assert [entry.chosen.raw.decode() for entry in entries] == expected
    assert "".join(delta.text for delta in deltas) == "".join(expected) == text
