"""What is said, reasoned and called, told apart whatever the split into pieces."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond_workloads.generation.engine.reader import Marks, Parts, Reader
from headpond_workloads.generation.engine.tool_syntax import SYNTAXES
from headpond_workloads.generation.items import ToolCall, ToolCallDelta
from workloads.generation.conftest import joined_calls

THINK = Marks(begin="<think>", end="</think>")
INSIDE = Marks(begin="<think>", end="</think>", starts_inside=True)
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
CALLS = '<tool_call>[{"name": "f", "arguments": {}}, {"name": "g"}]</tool_call>'

Read = tuple[str, str, list[tuple[str, str]]]


def read(
    pieces: list[str],
    *,
    syntax: str | None = "hermes",
    reasoning: Marks | None = THINK,
    most_calls: int | None = None,
) -> Read:
    """Text, reasoning, and name and arguments of each call."""
    reader = Reader(
        syntax=SYNTAXES[syntax] if syntax else None, reasoning=reasoning, most_calls=most_calls
    )
    text = reasoned = ""
    deltas: list[ToolCallDelta] = []
    for each in [*map(reader.push, pieces), reader.finish()]:
        text += each.text
        reasoned += each.reasoning
        deltas += each.calls
    return text, reasoned, joined_calls(deltas)


def test_text_without_marks_is_said() -> None:
    assert read(["1 < 2, ", "<b>bold</b> <too", "l> "]) == ("1 < 2, <b>bold</b> <tool> ", "", [])


def test_calls_have_a_name_and_arguments() -> None:
    text, _, calls = read([f"Let me look.\n{CALL}\n{CALLS}\n"])
    assert text == "Let me look."
    assert calls == [("f", '{"x": 1}'), ("f", "{}"), ("g", "{}")]


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"name": "f", "arguments": {"a": "\\u00e9 \\"}", "b": [1.50, 1e400, {}]} }',
         '{"a": "\\u00e9 \\"}", "b": [1.50, 1e400, {}]}'),
        ('{"arguments": {"x": 1}, "name": "f"}', '{"x": 1}'),
        ('{"id": 7, "name": "f", "parameters": {"x": 1}, "type": "function"}', '{"x": 1}'),
        ('{"name": "f", "arguments": "{\\"x\\": 1}"}', '{"x": 1}'),
        ('{"name": "f", "arguments": null}', "{}"),
        ('{ "name" : "f" }', "{}"),
    ],
)  # fmt: skip
def test_a_call_may_be_written_in_many_ways(written: str, arguments: str) -> None:
    for pieces in (
        [f"<tool_call>{written}</tool_call>"],
        list(f"<tool_call>{written}</tool_call>"),
    ):
        assert read(pieces) == ("", "", [("f", arguments)])


@pytest.mark.parametrize(
    "broken",
    [
        "<tool_call>{oops}</tool_call>",
        "<tool_call>[1]</tool_call> and on",
        '<tool_call>{"name": "f"',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": 1, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": 3}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "x"}</tool_call>',
        '<tool_call>{"arguments": {"x": 1}}</tool_call>',
        '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
        "<tool_call>",
        "<tool_call>\n<tool_call>\n</tool_call>",
    ],
)
def test_a_call_that_is_none_is_text_and_nothing_is_lost(broken: str) -> None:
    assert read([broken]) == (broken, "", [])
    assert read(list(broken)) == (broken, "", [])


def test_arguments_come_as_they_are_written() -> None:
    reader = Reader(syntax=SYNTAXES["hermes"])
    assert reader.push('<tool_call>{"name": "look", "argum') == Parts()
    (begun,) = reader.push('ents": {"city": "Ro').calls
    assert (begun.name, begun.arguments) == ("look", '{"city": "Ro')
    (more,) = reader.push('me", "n": 1').calls
    assert more == ToolCallDelta(index=0, arguments='me", "n": 1')
    (last,) = reader.push("}}</tool_ca").calls
    assert last == ToolCallDelta(index=0, arguments="}")
    assert reader.push("ll>\n").calls == ()
    assert reader.finish() == Parts()


def test_what_follows_a_call_that_breaks_off_is_text() -> None:
    text, _, calls = read(['<tool_call>{"name": "f", "arguments": {"x": oops}} end'])
    assert calls == [("f", '{"x": ')]
    assert text == "oops}} end"


def test_a_call_that_is_cut_off_keeps_what_there_is() -> None:
    assert read(['<tool_call>{"name": "f", "arguments": {"x": [2']) == ("", "", [("f", '{"x": [2')])
    (call,) = read(['<tool_call>{"name": "f", "arguments": {"x": [2]}}\n</tool'])[2]
    assert json.loads(call[1]) == {"x": [2]}


def test_a_missing_end_mark_does_not_hide_the_next_call() -> None:
    one = '<tool_call>{"name": "f", "arguments": {}}'
    assert read([f"{one}\n{one}</tool_call>"])[2] == [("f", "{}")] * 2


def test_an_empty_list_of_calls_says_nothing() -> None:
    assert read(["<tool_call>[]</tool_call>"]) == ("", "", [])


def test_reasoning_is_no_part_of_the_text() -> None:
    assert read(["<think>\nwell, </th", "ink>\n\nYes."]) == ("Yes.", "well,", [])
    assert read(["<think>cut off "]) == ("", "cut off ", [])
    assert read(["hm</think>Yes."], reasoning=INSIDE) == ("Yes.", "hm", [])
    # Where calls are not looked for, those it thinks of are reasoning as well.
    assert read([f"<think>{CALL}</think>{CALL}"])[1:] == (CALL, [("f", '{"x": 1}')])


def test_text_that_is_held_to_a_form_is_left_as_it_is() -> None:
    reader = Reader(reasoning=THINK, exact=True)
    assert reader.push("<think> hm </think> \n x ").text == " \n x "


def test_nobody_who_has_no_tools_has_calls() -> None:
    assert read([CALL], syntax=None) == (CALL, "", [])


@pytest.mark.parametrize("text", [CALL + CALL, CALLS, CALL + " and on"])
def test_an_output_may_end_after_one_call(text: str) -> None:
    for pieces in ([text], list(text)):
        said, _, calls = read(pieces, most_calls=1)
        assert said == ""
        assert [name for name, _ in calls] == ["f"]


FAMILIES = {
    "hermes": CALL,
    "smollm": '<tool_call>[{"name": "f", "arguments": {"x": 1}}]</tool_call>',
    "mistral": '[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}}]',
    "llama3_json": '{"name": "f", "parameters": {"x": 1}}',
}


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_reads_what_it_writes(family: str) -> None:
    syntax = SYNTAXES[family]
    called = ToolCall(call_id="call_0", name="f", arguments='{"x": 1}')
    assert syntax.written([called]) == FAMILIES[family]
    written = syntax.written([called, called])
    assert read([written], syntax=family) == ("", "", [("f", '{"x": 1}')] * 2)


def test_a_bare_call_begins_the_answer_or_has_its_mark() -> None:
    call = FAMILIES["llama3_json"]
    assert read([f"<|python_tag|>{call}"], syntax="llama3_json")[2] == [("f", '{"x": 1}')]
    assert read([f"Well: {call}"], syntax="llama3_json") == (f"Well: {call}", "", [])
    assert read(['{"a": 1}'], syntax="llama3_json") == ('{"a": 1}', "", [])


def test_identifiers_have_the_form_that_templates_take() -> None:
    mistral = SYNTAXES["mistral"]
    for each in (mistral.new_id(), mistral.fitting_id("call_0")):
        assert len(each) == 9
        assert each.isalnum()
    assert mistral.fitting_id("abcdefGH9") == "abcdefGH9"
    assert mistral.fitting_id("call_0") != mistral.fitting_id("call_1")
    assert SYNTAXES["hermes"].new_id().startswith("call_")


pieces = st.lists(
    st.sampled_from(
        [
            "<think>", "</think>", "<tool_call>", "</tool_call>", CALL, CALLS, "<", "to", "x y",
            "\n", "[TOOL_CALLS]", '{"name": "f", "arguments": {"x": [1, "</tool_call>"]}}', "[",
            "{", "]", "}", ",", ";", '"', '"name": "g"', '"arguments": ', "<|python_tag|>", " ",
        ]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    text=pieces,
    cuts=st.lists(st.integers(0, 300), max_size=10),
    syntax=st.sampled_from([None, *SYNTAXES]),
    reasoning=st.sampled_from([None, THINK, INSIDE]),
    most_calls=st.sampled_from([None, 1]),
)
def test_the_split_has_no_influence(
    text: str,
    cuts: list[int],
    syntax: str | None,
    reasoning: Marks | None,
    most_calls: int | None,
) -> None:
    borders = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    split = [text[start:end] for start, end in pairwise(borders)]
    whole = read([text], syntax=syntax, reasoning=reasoning, most_calls=most_calls)
    for each in (split, list(text)):
        assert read(each, syntax=syntax, reasoning=reasoning, most_calls=most_calls) == whole
    if reasoning is None and not whole[2] and "]" not in text:
        assert whole[0] == text
