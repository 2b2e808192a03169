"""Masks that hold an output to a grammar, and grammars that must not hold up the others."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from random import Random

import jsonschema_rs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.engine import Json
from headpond.errors import InvalidRequest
from headpond_workloads.generation.dialect_tools import read_functions
from headpond_workloads.generation.engine.form import grammar_of, parameters_of
from headpond_workloads.generation.engine.grammar import Grammars, Matcher, masks
from headpond_workloads.generation.engine.grammar_trial import GrammarTrial
from headpond_workloads.generation.engine.transformers_reading import tokenizer_reading_of
from headpond_workloads.generation.engine.vocabulary import Vocabulary
from headpond_workloads.generation.items import Constraint
from headpond_workloads.generation.schema_tools import FunctionParam
from workloads.generation.conftest import train_tokenizer

TOKENIZER = train_tokenizer()
READING = tokenizer_reading_of(TOKENIZER)
VOCABULARY = Vocabulary(TOKENIZER.backend_tokenizer)
VOCAB, EOS = 400, 2
GRAMMARS = Grammars(READING, VOCAB, frozenset({EOS}))


def matcher_of(constraint: Constraint) -> Matcher:
    return GRAMMARS.matcher(grammar_of(constraint), constraint.param, "t")


def schema_of(schema: Json) -> Constraint:
    return Constraint(kind="json_schema", source=json.dumps(schema), param="schema")


def allowed(matcher: Matcher) -> list[int]:
    bits = np.unpackbits(matcher.bits().view(np.uint8), bitorder="little")
    return [int(each) for each in np.flatnonzero(bits)]


def accepts(matcher: Matcher, text: str) -> bool:
    """Whether the output can be this text and end there."""
    for token_id in TOKENIZER.encode(text):
        if matcher.complete or token_id not in allowed(matcher):
            return False
        matcher.accept(token_id)
    return matcher.complete or EOS in allowed(matcher)


def walk(matcher: Matcher, seed: int, most: int = 400) -> str | None:
    """Write anything that is allowed, in a hurry to end; None when it does not."""
    random = Random(seed)  # noqa: S311 - tests
    raw = b""
    for _ in range(most):
        open_to = allowed(matcher)
        assert open_to, matcher.refusal
        if EOS in open_to:
            return raw.decode()
        closing = [each for each in open_to if VOCABULARY.raw(each) in b'"}],:0123456789']
        token_id = random.choice(closing if closing and random.random() < 0.7 else open_to)
        raw += VOCABULARY.raw(token_id)
        matcher.accept(token_id)
        if matcher.complete:
            return raw.decode()
    return None


KINDS = {
    "choice": ('["yes", "no \\"é\\" \\\\ 👋"]', ["yes", 'no "é" \\ 👋'], ["ye", "yes.", ""]),
    "regex": ("[0-9]{3}-[a-f]{2}/", ["123-ab/"], ["123-ag/", "12-ab/", "123-ab/ "]),
    "lark": ('start: "a" "b"+ "c"', ["abc", "abbbc"], ["ac", "ab"]),
    "json_object": ("", ["{}", '{"a": [1, "é", null]}'], ["[]", "{", "{} "]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_the_form_passes_and_nothing_else(kind: str) -> None:
    source, right, wrong = KINDS[kind]
    constraint = Constraint(kind=kind, source=source)  # type: ignore[arg-type]
    for text in right:
        assert accepts(matcher_of(constraint), text)
    for text in wrong:
        assert not accepts(matcher_of(constraint), text)


names = st.sampled_from(["a", "b c", '"', "é", "名", "$ref", ""])
leaves = st.one_of(
    st.sampled_from(
        [
            {"type": "boolean"}, {"type": "null"}, {"type": "integer"}, {"type": "number"},
            {"type": "string"}, {"type": "string", "minLength": 2, "maxLength": 4},
            {"type": "string", "pattern": "^[a-c]{1,3}x$"}, {"type": "string", "format": "date"},
            {"type": "integer", "minimum": -3, "maximum": 12}, {"const": 'a"b\\\n'},
            {"type": "number", "exclusiveMinimum": 0.5, "maximum": 2}, {"type": ["null", "integer"]},
        ]
    ),
    st.lists(st.one_of(st.integers(-9, 9), names, st.none()), min_size=1, max_size=4, unique=True).map(
        lambda values: {"enum": values}
    ),
)  # fmt: skip


def containers(inner: st.SearchStrategy[dict[str, Json]]) -> st.SearchStrategy[dict[str, Json]]:
    def an_object(parts: tuple[dict[str, dict[str, Json]], set[str], bool]) -> dict[str, Json]:
        properties, required, more = parts
        needed: list[Json] = [*sorted(required & properties.keys())]
        return {
            "type": "object",
            "properties": dict(properties),
            "required": needed,
            "additionalProperties": more,
        }

    return st.one_of(
        st.tuples(st.dictionaries(names, inner, max_size=4), st.sets(names), st.booleans()).map(
            an_object
        ),
        st.tuples(inner, st.integers(0, 2), st.integers(2, 4)).map(
            lambda parts: {
                "type": "array", "items": parts[0], "minItems": parts[1], "maxItems": parts[2]
            }
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": [*options]}),
    )  # fmt: skip


schemas = st.recursive(leaves, containers, max_leaves=6)


@settings(max_examples=120, deadline=None)
@given(schema=schemas, seed=st.integers(0, 2**16))
def test_whatever_is_written_under_a_schema_is_valid(schema: dict[str, Json], seed: int) -> None:
    text = walk(matcher_of(schema_of(schema)), seed)
    if text is not None:
        # 1e999 is a JSON number, but none of Python's.
        value = json.loads(text, parse_float=lambda digits: min(float(digits), 1e300))
        jsonschema_rs.validate(schema, value)


def test_most_of_what_is_written_ends() -> None:
    schema: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    texts = [walk(matcher_of(schema_of(schema)), seed) for seed in range(20)]
    assert sum(text is not None for text in texts) > 10


def test_white_space_comes_to_an_end() -> None:
    matcher = matcher_of(schema_of({"type": "array", "items": {"type": "null"}}))
    assert accepts(matcher, "[\n    null,\n    null\n]")
    assert not accepts(matcher_of(schema_of({"type": "array"})), "[" + "\n" * 50 + "]")


REFUSED = {
    "regex": Constraint(kind="regex", source="(((", param="guided_regex"),
    "type": schema_of({"type": "wat"}),
    "json": Constraint(kind="json_schema", source="[", param="schema"),
    "list": Constraint(kind="json_schema", source="[]", param="schema"),
    "depth": Constraint(kind="json_schema", source="[" * 100_000, param="schema"),
    "keyword": schema_of({"type": "string", "format": "no such format"}),
    "nothing": schema_of(False),
    "loop": schema_of({"$ref": "#"}),
    "remote": schema_of({"$ref": "https://example.org/schema"}),
    "surrogate": Constraint(kind="regex", source="\ud800", param="guided_regex"),
    "unknown rule": Constraint(kind="lark", source="start: nothing", param="guided_grammar"),
    "no end": Constraint(kind="lark", source="start: start", param="guided_grammar"),
    "long": Constraint(kind="lark", source="x" * 2**20, param="guided_grammar"),
    "choices": Constraint(kind="choice", source="[1]", param="guided_choice"),
    "no choice": Constraint(kind="choice", source="[]", param="guided_choice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_that_is_none_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        matcher_of(REFUSED[name])
    assert refusal.value.param == REFUSED[name].param
    assert len(refusal.value.message) < 500


INTEGER: Json = {"type": "integer"}
TWO_OF_ANY: Json = {"type": "object", "additionalProperties": INTEGER, "minProperties": 2}


@pytest.mark.parametrize(
    "schema",
    [
        TWO_OF_ANY,
        {"minProperties": 2},
        {"type": "object", "patternProperties": {"^x": INTEGER}, "minProperties": 2},
        {"type": "array", "items": TWO_OF_ANY},
        {"anyOf": [{"type": "null"}, TWO_OF_ANY]},
        {"$defs": {"two": TWO_OF_ANY}, "$ref": "#/$defs/two"},
        {"type": "object", "properties": {"a": TWO_OF_ANY}},
        {"type": "object", "properties": {"a": INTEGER}, "required": ["a"], "minProperties": 3},
    ],
)
def test_keys_are_not_counted_that_may_be_repeated(schema: Json) -> None:
    with pytest.raises(InvalidRequest, match="minProperties") as refusal:
        matcher_of(schema_of(schema))
    assert refusal.value.param == "schema"
    function = FunctionParam(
        name="f",
        parameters={"type": "object", "properties": {"a": schema}, "required": ["a"]},
        strict=True,
    )
    (tool,) = read_functions([(function, "f")])
    with pytest.raises(InvalidRequest, match="the parameters of 'f'"):
        parameters_of(tool)


def test_keys_that_are_sure_to_differ_are_counted() -> None:
    schema: Json = {
        "type": "object",
        "properties": {"a": INTEGER},
        "required": ["a"],
        "additionalProperties": INTEGER,
        "minProperties": 2,
    }
    assert accepts(matcher_of(schema_of(schema)), '{"a":1,"b":2}')
    for text in ('{"a":1}', '{"a":1,"a":2}'):
        assert not accepts(matcher_of(schema_of(schema)), text)
    assert not accepts(matcher_of(schema_of({"type": "object", "minProperties": 1})), "{}")
    counts: Json = {"enum": [{"minProperties": 9}]}
    named_so: Json = {"type": "object", "properties": {"minProperties": counts}}
    assert accepts(matcher_of(schema_of(named_so)), '{"minProperties":{"minProperties":9}}')


@pytest.mark.parametrize("name", ["<|im_end|>", "<|endoftext|>"])
def test_tokens_have_no_names_in_a_grammar(name: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        matcher_of(Constraint(kind="lark", source=f"start: {name}", param="guided_grammar"))
    assert refusal.value.message == (
        "it can't be held: there is no token of this name; "
        "a grammar names tokens by number, as in <[2]>"
    )


BROKEN = {
    "open": ("a(((", "unclosed group", "a((("),
    "look": ("ab(?=a)b", "look-around", "ab(?="),
    "range": ("é/[z-a]", "invalid character class range", "é/[z-a"),
    "long": ("a" * 5000 + "(", "unclosed group", "aaa("),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("kind", ["regex", "schema"])
def test_a_broken_expression_is_told_what_is_wrong_and_where(name: str, kind: str) -> None:
    source, reason, place = BROKEN[name]
    broken = Constraint(kind="regex", source=source)
    with pytest.raises(InvalidRequest) as refusal:
        matcher_of(broken if kind == "regex" else schema_of({"type": "string", "pattern": source}))
    assert reason in refusal.value.message
    assert f'{place}":' in refusal.value.message
    assert len(refusal.value.message) < 200


HARD: dict[str, Constraint] = {
    "repeated": Constraint(kind="regex", source="((a{1,100}){1,100}){1,100}"),
    "backwards": Constraint(kind="regex", source="(.*a.{30}){9}"),
    "both": Constraint(kind="lark", source="start: T\nT: /.*a.{60}/ & /.*b.{50}/ & /.*c.{40}/"),
    "ambiguous": Constraint(kind="lark", source='start: e\ne: e e | e e e | "a" | '),
    "deep": Constraint(kind="lark", source='start: a{9999}\na: b{9999}\nb: "x"{9999}'),
    "pattern": schema_of({"type": "string", "pattern": "^(a{1000}){1000}$"}),
    "long": schema_of({"type": "string", "minLength": 10**6, "maxLength": 10**7}),
    "many": schema_of({"type": "array", "items": {"type": "integer"}, "minItems": 10**9}),
    "multiple": schema_of({"type": "integer", "multipleOf": 999_983}),
    "properties": schema_of({"properties": {f"p{at}": {"type": "integer"} for at in range(3000)}}),
    "values": schema_of({"enum": [f"v{at}" for at in range(9000)]}),
    "memory": schema_of({"allOf": [{"pattern": f".*{each * 5}.*"} for each in "abcdefghijklm"]}),
    "stack": Constraint(
        kind="lark", source="\n".join(["start: r0", *(f"r{n}: r{n + 1}" for n in range(9999))])
    ),
    "optional": Constraint(kind="regex", source="a?" * 20_000 + "a" * 2_000),
}


@pytest.mark.parametrize("name", HARD)
def test_no_form_holds_up_the_others(name: str) -> None:
    """Refused when planned or given up when drawn, or held: this process sees the end of it."""
    try:
        matcher = matcher_of(HARD[name])
    except InvalidRequest:
        matcher = None
    random = Random(1)  # noqa: S311 - tests
    for _ in range(100):
        if matcher is None or matcher.complete or not (open_to := allowed(matcher)):
            break
        matcher.accept(random.choice(open_to))
    # A usual form is held as ever.
    assert accepts(matcher_of(Constraint(kind="regex", source="[ab]+")), "abba")


def test_a_form_that_gets_too_hard_says_so() -> None:
    matcher = matcher_of(HARD["repeated"])
    (letter,) = TOKENIZER.encode("a")
    for _ in range(99):
        if matcher.refusal is not None:
            break
        matcher.accept(letter)
        matcher.bits()
    assert matcher.refusal is not None
    assert matcher.refusal.param == HARD["repeated"].param
    assert not matcher.complete
    assert not allowed(matcher)


def test_a_mask_forbids_what_cannot_follow() -> None:
    yes = matcher_of(Constraint(kind="choice", source='["yes", "no"]'))
    digits = matcher_of(Constraint(kind="regex", source="[0-9]+"))
    forbidden = masks([yes, digits], VOCAB)
    assert forbidden.shape == (2, VOCAB)
    for row, matcher in zip(forbidden, (yes, digits), strict=True):
        assert [int(each) for each in np.flatnonzero(~row)] == allowed(matcher)


def test_outputs_of_one_form_do_not_disturb_each_other() -> None:
    constraint = Constraint(kind="regex", source="[ab]c")
    first, second = matcher_of(constraint), matcher_of(constraint)
    first.accept(TOKENIZER.encode("a")[0])
    assert accepts(second, "bc")
    assert accepts(first, "c")


def test_threads_may_ask_for_forms_at_once() -> None:
    grammars = Grammars(READING, VOCAB, frozenset({EOS}))

    def check(at: int) -> bool:
        constraint = Constraint(kind="regex", source=f"x{{{at % 90 + 1}}}")
        matcher = grammars.matcher(grammar_of(constraint), "guided_regex", "t")
        return accepts(matcher, "x" * (at % 90 + 1))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(check, range(400)))


def test_a_form_that_was_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    grammars = Grammars(READING, VOCAB, frozenset({EOS}))
    grammar = grammar_of(HARD["multiple"])
    with pytest.raises(InvalidRequest) as first:
        grammars.matcher(grammar, "one", "t")
    # Nothing can be tried from here on.
    monkeypatch.setattr(GrammarTrial, "check", lambda *_: pytest.fail("it was tried"))
    with pytest.raises(InvalidRequest) as second:
        grammars.matcher(grammar, "other", "u")
    assert (first.value.message, second.value.param) == (second.value.message, "other")


@pytest.mark.parametrize("strict", [False, True])
def test_a_function_without_parameters_takes_none(strict: bool) -> None:
    (tool,) = read_functions([(FunctionParam(name="now"), "tools.0")], strict=strict)
    grammar = parameters_of(tool)
    assert accepts(GRAMMARS.matcher(grammar, "tools", "t"), "{}")
    assert not accepts(GRAMMARS.matcher(grammar, "tools", "t"), '{"a": 1}')


CONTROL_TEXT = {
    "choice": Constraint(kind="choice", source='["a <|im_end|>"]'),
    "regex": Constraint(kind="regex", source=r"[ab] <\|im_end\|>"),
    "json": schema_of({"type": "string", "const": "a <|im_end|>"}),
    "key": schema_of(
        {
            "properties": {"a <|im_end|>": {"type": "null"}},
            "required": ["a <|im_end|>"],
            "additionalProperties": False,
        }
    ),
}


@pytest.mark.parametrize("name", CONTROL_TEXT)
def test_the_name_of_a_control_token_is_held_as_plain_text(name: str) -> None:
    matcher, written = matcher_of(CONTROL_TEXT[name]), b""
    for _ in range(60):
        open_to = [each for each in allowed(matcher) if each != EOS]
        if matcher.complete or not open_to:
            break
        written += VOCABULARY.raw(open_to[-1])
        matcher.accept(open_to[-1])
    assert b" <|im_end|>" in written
    assert matcher.refusal is None
