from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headpond_workloads.generation.engine.reader import Marks, Parts, Reader

THINK = Marks(begin="<think>", end="</think>")
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
CALLS = '<tool_call>[{"name": "f", "arguments": {}}, {"name": "g"}]</tool_call>'


def read(pieces: list[str], *, tools: bool = True, reasoning: Marks | None = THINK) -> Parts:
    reader = Reader(tools=tools, reasoning=reasoning)
    parts = Parts()
    for each in [*map(reader.push, pieces), reader.finish()]:
        parts.text += each.text
        parts.reasoning += each.reasoning
        parts.calls += each.calls
    return parts


def test_text_without_marks_is_said() -> None:
    assert read(["1 < 2, ", "<b>bold</b> <too", "l>"]) == Parts(text="1 < 2, <b>bold</b> <tool>")


def test_calls_have_a_name_and_arguments() -> None:
    parts = read([f"Let me look.\n{CALL}\n{CALLS}"])
    assert parts.text == "Let me look.\n"
    assert [(call.index, call.name, call.arguments) for call in parts.calls] == [
        (0, "f", '{"x": 1}'),
        (1, "f", "{}"),
        (2, "g", "{}"),
    ]
    assert len({call.call_id for call in parts.calls}) == 3


def test_a_call_that_can_t_be_read_is_text_and_nothing_is_lost() -> None:
    for broken in ("<tool_call>{oops}</tool_call>", "<tool_call>[1]</tool_call> and on"):
        assert read([broken]) == Parts(text=broken)
    assert read(['<tool_call>{"name": "f"']) == Parts(text='<tool_call>{"name": "f"')


def test_a_call_without_its_end_mark_counts_when_it_is_whole() -> None:
    (call,) = read(['<tool_call>{"name": "f", "arguments": {"x": [2]}}']).calls
    assert json.loads(call.arguments) == {"x": [2]}


def test_reasoning_is_no_part_of_the_text() -> None:
    assert read(["<think>well, </th", "ink>Yes."]) == Parts(text="Yes.", reasoning="well, ")
    assert read(["<think>cut off"]) == Parts(reasoning="cut off")
    inside = Marks(begin="<think>", end="</think>", starts_inside=True)
    assert read(["hm</think>Yes."], reasoning=inside) == Parts(text="Yes.", reasoning="hm")


def test_nobody_who_has_no_tools_has_calls() -> None:
    assert read([CALL], tools=False) == Parts(text=CALL)


pieces = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<tool_call>", "</tool_call>", CALL, CALLS, "<", "to", "x y", "\n"]
    ),
    max_size=12,
).map("".join)


@given(text=pieces, cuts=st.lists(st.integers(0, 200), max_size=8))
def test_the_split_has_no_influence(text: str, cuts: list[int]) -> None:
    borders = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    split = [text[start:end] for start, end in pairwise(borders)]
    whole, parts = read([text]), read(split)
    assert (parts.text, parts.reasoning) == (whole.text, whole.reasoning)
    assert [(call.index, call.name, call.arguments) for call in parts.calls] == [
        (call.index, call.name, call.arguments) for call in whole.calls
    ]
