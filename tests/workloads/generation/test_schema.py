"""What the wire types take, refuse, and make of a request."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from headpond.dialect import Ask, Exchange, Incoming, Route
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.http.errors import invalid_request
from headpond_workloads.generation.dialects import routes
from headpond_workloads.generation.items import (
    GenerationItem,
    Message,
    Sampling,
    TokenRules,
    ToolCall,
)

CHAT, COMPLETIONS, *_ = routes

Read = Callable[..., Exchange]

USER = {"role": "user", "content": "hi"}
CALLS = {
    "role": "assistant",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}


def chat(**fields: object) -> Exchange:
    body = {"model": "m", "messages": [USER], **fields}
    return CHAT.read(Incoming(body=json.dumps(body).encode()))


def completion(**fields: object) -> Exchange:
    return COMPLETIONS.read(
        Incoming(body=json.dumps({"model": "m", "prompt": "x", **fields}).encode())
    )


def part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def image() -> dict[str, object]:
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    return {"role": "user", "content": [part("see"), url]}


def items(ask: Ask) -> list[GenerationItem]:
    assert all(isinstance(item, GenerationItem) for item in ask.items)
    return [item for item in ask.items if isinstance(item, GenerationItem)]


def item(exchange: Exchange) -> GenerationItem:
    (only,) = items(exchange.ask())
    return only


def refused_at(fields: dict[str, object], read: Read = chat) -> set[str]:
    with pytest.raises(ValidationError) as refusal:
        read(**fields)
    return {".".join(map(str, error["loc"])) for error in refusal.value.errors()}


class TestDefaults:
    def test_chat_leaves_the_length_to_the_context(self) -> None:
        made = item(chat())
        assert made.max_output_tokens is None
        assert made.sampling == Sampling()
        assert made.logprobs is None
        assert made.prompt.messages == (Message(role="user", content="hi"),)
        assert made.prompt.param == "messages"

    def test_completions_give_sixteen_tokens(self) -> None:
        made = item(completion())
        assert made.max_output_tokens == 16
        assert made.prompt.text == "x"
        assert made.prompt.param == "prompt"

    @pytest.mark.parametrize("read", [chat, completion])
    def test_null_is_the_same_as_absent(self, read: Read) -> None:
        names: tuple[str, ...] = (
            "temperature",
            "top_p",
            "n",
            "stop",
            "seed",
            "stream",
            "stream_options",
        )
        names += ("logit_bias", "logprobs", "max_tokens", "user", "top_k", "min_p", "ignore_eos")
        names += ("tools", "response_format", "best_of", "suffix", "echo", "frequency_penalty")
        assert read(**dict.fromkeys(names)).ask() == read().ask()

    def test_unknown_and_harmless_fields_change_nothing(self) -> None:
        harmless = {
            "user": "u",
            "metadata": {"a": "b"},
            "store": False,
            "service_tier": "auto",
            "prompt_cache_key": "k",
            "safety_identifier": "s",
            "parallel_tool_calls": True,
            "tools": [],
            "tool_choice": "none",
            "response_format": {"type": "text"},
            "modalities": ["text"],
            "no_such_field": {"deep": [1]},
        }
        assert chat(**harmless).ask() == chat().ask()


class TestFields:
    def test_sampling_is_passed_on(self) -> None:
        made = item(
            chat(
                temperature=0,
                top_p=0.5,
                top_k=7,
                min_p=0.1,
                presence_penalty=-2,
                frequency_penalty=2,
                repetition_penalty=1.2,
                logit_bias={"50": -100, "7": 1.5},
                seed=11,
                stop="END",
                ignore_eos=True,
                max_completion_tokens=9,
            )
        )
        assert made.sampling == Sampling(
            temperature=0.0,
            top_p=0.5,
            top_k=7,
            min_p=0.1,
            presence_penalty=-2.0,
            frequency_penalty=2.0,
            repetition_penalty=1.2,
            logit_bias={50: -100.0, 7: 1.5},
            seed=11,
        )
        assert (made.stop, made.ignore_eos) == (("END",), True)
        assert (made.max_output_tokens, made.max_tokens_param) == (9, "max_completion_tokens")

    @pytest.mark.parametrize("read", [chat, completion])
    def test_extensions_are_passed_on(self, read: Read) -> None:
        made = item(
            read(
                allowed_token_ids=[5, 6],
                bad_words=["no"],
                min_tokens=3,
                stop_token_ids=[7],
                include_stop_str_in_output=True,
                skip_special_tokens=False,
                cache_salt="s",
                prompt_logprobs=2,
                truncate_prompt_tokens=9,
            )
        )
        assert made.rules == TokenRules(min_tokens=3, allowed_ids=(5, 6), bad_words=("no",))
        assert (made.stop_ids, made.include_stop, made.show_control) == ((7,), True, True)
        assert (made.cache_salt, made.prompt_logprobs, made.prompt.most_tokens) == ("s", 2, 9)

    @pytest.mark.parametrize("read", [chat, completion])
    def test_a_prompt_can_be_cut_to_what_fits(self, read: Read) -> None:
        assert item(read(truncate_prompt_tokens=-1)).prompt.most_tokens == "what fits"

    @pytest.mark.parametrize(
        ("fields", "end"),
        [
            ({}, "answer"),
            ({"add_generation_prompt": True}, "answer"),
            ({"add_generation_prompt": False}, "turn"),
            ({"continue_final_message": True}, "inside"),
            ({"continue_final_message": True, "add_generation_prompt": False}, "inside"),
        ],
    )
    def test_where_a_conversation_ends(self, fields: dict[str, object], end: str) -> None:
        assert item(chat(**fields)).prompt.end == end

    def test_documents_and_special_tokens_of_a_prompt(self) -> None:
        assert item(chat(documents=[{"text": "a"}])).prompt.documents == ({"text": "a"},)
        assert not item(completion(add_special_tokens=False)).prompt.add_special_tokens

    def test_the_prompt_is_scored_for_whoever_asks_for_more(self) -> None:
        assert item(completion(echo=True, logprobs=1, prompt_logprobs=3)).prompt_logprobs == 3
        assert item(completion(echo=True, logprobs=4, prompt_logprobs=3)).prompt_logprobs == 4
        assert item(completion(max_tokens=0, prompt_logprobs=0)).max_output_tokens == 0
        made = items(chat(n=2, prompt_logprobs=1).ask())
        assert [one.prompt_logprobs for one in made] == [1, None]

    @pytest.mark.parametrize("off", [0, -1])
    def test_top_k_can_be_off(self, off: int) -> None:
        assert item(chat(top_k=off)).sampling.top_k == 0

    @given(n=st.integers(1, 16), seed=st.none() | st.integers(-(2**63), 2**63 - 1))
    def test_each_choice_has_the_next_seed(self, n: int, seed: int | None) -> None:
        made = items(chat(n=n, seed=seed).ask())
        expected = [None if seed is None else seed + i for i in range(n)]
        assert [one.sampling.seed for one in made] == expected
        assert all(one.prompt == made[0].prompt for one in made)

    def test_prompts_times_samples_in_the_order_of_the_indexes(self) -> None:
        made = items(completion(prompt=["a", "b"], n=2, seed=5).ask())
        assert [(one.prompt.text, one.sampling.seed) for one in made] == [
            ("a", 5),
            ("a", 6),
            ("b", 5),
            ("b", 6),
        ]

    @pytest.mark.parametrize(
        ("prompt", "expected"),
        [
            ("", [("", None)]),
            (["a", "b"], [("a", None), ("b", None)]),
            ([1, 2], [(None, (1, 2))]),
            ([[1], [2, 3]], [(None, (1,)), (None, (2, 3))]),
        ],
    )
    def test_the_four_forms_of_prompt(self, prompt: object, expected: object) -> None:
        made = items(completion(prompt=prompt).ask())
        assert [(one.prompt.text, one.prompt.token_ids) for one in made] == expected

    def test_roles_and_parts_of_messages(self) -> None:
        messages = [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "name": "ann", "content": [part("a"), part("b")]},
            {"role": "assistant", "content": "c", "tool_calls": None, "refusal": None},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "content": "d", "tool_call_id": "1"},
        ]
        assert item(chat(messages=messages)).prompt.messages == (
            Message(role="system", content="be brief"),
            Message(role="user", content="ab", name="ann"),
            Message(role="assistant", content="c"),
            Message(
                role="assistant",
                content="",
                tool_calls=(ToolCall(call_id="1", name="f", arguments="{}"),),
            ),
            Message(role="tool", content="d", tool_call_id="1"),
        )

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({}, None),
            ({"logprobs": False}, None),
            ({"logprobs": True}, 0),
            ({"logprobs": True, "top_logprobs": 20}, 20),
        ],
    )
    def test_chat_logprobs(self, fields: dict[str, object], expected: int | None) -> None:
        assert item(chat(**fields)).logprobs == expected

    @pytest.mark.parametrize("asked", [None, 0, 5])
    def test_completion_logprobs(self, asked: int | None) -> None:
        assert item(completion(logprobs=asked)).logprobs == asked


BAD_SHARED = [
    ("model", ""),
    ("model", 5),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", "1"),
    ("temperature", True),
    ("top_p", 0),
    ("top_p", 1.1),
    ("n", 0),
    ("n", 17),
    ("n", 1.0),
    ("n", True),
    ("n", "2"),
    ("stream", 1),
    ("stream", "true"),
    ("presence_penalty", 2.5),
    ("frequency_penalty", -2.5),
    ("seed", 1.5),
    ("seed", 2**63),
    ("max_tokens", -1),
    ("max_tokens", "5"),
    ("top_k", -2),
    ("min_p", 1.5),
    ("repetition_penalty", 0),
    ("ignore_eos", "no"),
    ("logit_bias", {"a": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"1": 101}),
    ("logit_bias", {"1": "2"}),
    ("logit_bias", {"1": True}),
    ("logit_bias", [1]),
    ("stop", ["a", "b", "c", "d", "e"]),
    ("stop", 5),
    ("user", 5),
    ("stream_options", True),
]


class TestRefusals:
    @pytest.mark.parametrize("read", [chat, completion])
    @pytest.mark.parametrize(("field", "value"), BAD_SHARED)
    def test_wrong_values_are_named(self, read: Read, field: str, value: object) -> None:
        assert refused_at({field: value}, read) == {field}

    @pytest.mark.parametrize(
        ("fields", "path"),
        [
            ({"messages": []}, "messages"),
            ({"messages": "hi"}, "messages"),
            ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
            ({"messages": [USER, {"role": "user", "content": 5}]}, "messages.1.content"),
            ({"messages": [{"content": "x"}]}, "messages.0.role"),
            ({"messages": [{"role": "user", "content": [{}]}]}, "messages.0.content.0.type"),
            ({"logprobs": 1}, "logprobs"),
            ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
            ({"max_completion_tokens": 0}, "max_completion_tokens"),
            ({"stop": ["a", ""]}, "stop.1"),
            (
                {"stream": True, "stream_options": {"include_usage": 1}},
                "stream_options.include_usage",
            ),
            ({"metadata": {"a": 1}}, "metadata.a"),
        ],
    )
    def test_wrong_chat_values_are_named(self, fields: dict[str, object], path: str) -> None:
        assert refused_at(fields) == {path}

    @pytest.mark.parametrize(
        "prompt", [None, [], 5, [[]], [1, "a"], ["a", 1], [[1], "a", 2], [True], [-1], [1.5], {}]
    )
    def test_wrong_prompts_are_named(self, prompt: object) -> None:
        assert refused_at({"prompt": prompt}, completion) == {"prompt"}

    @pytest.mark.parametrize(
        ("field", "value"), [("logprobs", 6), ("logprobs", True), ("best_of", 0), ("echo", 1)]
    )
    def test_wrong_completion_values_are_named(self, field: str, value: object) -> None:
        assert refused_at({field: value}, completion) == {field}

    def test_numbers_are_finite(self) -> None:
        with pytest.raises(ValidationError):
            CHAT.read(
                Incoming(
                    body=b'{"model":"m","messages":[{"role":"user","content":"a"}],"top_p":NaN}'
                )
            )

    @pytest.mark.parametrize(
        ("exchange", "param"),
        [
            (chat(top_logprobs=2), "top_logprobs"),
            (chat(max_tokens=1, max_completion_tokens=1), "max_tokens"),
            (chat(stream_options={}), "stream_options"),
            (completion(stream=False, stream_options={}), "stream_options"),
            (completion(best_of=1, n=2), "best_of"),
            (chat(messages=[{"role": "user"}]), "messages.0.content"),
            (chat(tool_choice="required"), "tool_choice"),
            (completion(max_tokens=0), "max_tokens"),
            (completion(best_of=2, stream=True), "best_of"),
            (completion(prompt_logprobs=1, stream=True), "prompt_logprobs"),
            (chat(prompt_logprobs=0, stream=True), "prompt_logprobs"),
            (
                chat(continue_final_message=True, add_generation_prompt=True),
                "continue_final_message",
            ),
            (chat(messages=[USER, CALLS], continue_final_message=True), "continue_final_message"),
            (
                chat(messages=[USER, {"role": "user", "content": [{"type": "text"}]}]),
                "messages.1.content.0.text",
            ),
        ],
    )
    def test_fields_that_contradict_each_other(self, exchange: Exchange, param: str) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            exchange.ask()
        assert type(refusal.value) is InvalidRequest
        assert refusal.value.param == param

    @pytest.mark.parametrize(
        ("exchange", "param"),
        [
            (chat(tools=[{"type": "custom", "custom": {"name": "c"}}]), "tools.0.type"),
            (chat(response_format={"type": "grammar"}), "response_format.type"),
            (chat(audio={"voice": "a"}), "audio"),
            (chat(modalities=["text", "audio"]), "modalities"),
            (chat(store=True), "store"),
            (chat(web_search_options={"user_location": None}), "web_search_options"),
            (chat(audio={}), "audio"),
            (chat(prediction={"type": "content", "content": "a"}), "prediction"),
            (chat(web_search_options={}), "web_search_options"),
            (chat(add_special_tokens=True), "add_special_tokens"),
            (chat(best_of=2), "best_of"),
            (chat(echo=True), "echo"),
            (chat(messages=[USER, image()]), "messages.1.content.1"),
            (completion(suffix="z"), "suffix"),
            (chat(suffix="z"), "suffix"),
            (chat(input="x"), "input"),
            (chat(max_output_tokens=5), "max_output_tokens"),
            (completion(max_completion_tokens=5), "max_completion_tokens"),
            (completion(tools=[{"type": "function", "function": {"name": "f"}}]), "tools"),
            (completion(top_logprobs=2), "top_logprobs"),
            (completion(messages=[USER]), "messages"),
            (completion(documents=[{"text": "a"}]), "documents"),
            (completion(continue_final_message=True), "continue_final_message"),
            (completion(chat_template_kwargs={"a": 1}), "chat_template_kwargs"),
            (completion(store=True), "store"),
        ],
    )
    def test_what_is_not_done_yet_is_named(self, exchange: Exchange, param: str) -> None:
        with pytest.raises(UnsupportedParameter) as refusal:
            exchange.ask()
        assert refusal.value.param == param

    @pytest.mark.parametrize("read", [chat, completion])
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("use_beam_search", True),
            ("chat_template", "{{ messages }}"),
            ("include_reasoning", False),
            ("return_token_ids", True),
            ("logits_processors", ["a"]),
            ("regex", "a+"),
            ("lora_path", "a"),
            ("no_stop_trim", True),
            ("grammar", "root ::= a"),
            ("mirostat", 2),
            ("typical_p", 0.9),
            ("repeat_penalty", 1.1),
            ("n_predict", 8),
            ("prompt_embeds", "AAAA"),
            ("input_embeds", [[0.5]]),
            ("return_tokens", True),
            ("post_sampling_probs", True),
            ("response_fields", ["content"]),
            ("truncation_side", "right"),
            ("repetition_detection", {"max_pattern_size": 2}),
            ("repeat_last_n", 8),
            ("watermarking", True),
            ("return_token_ids", 1),
            ("vllm_xargs", {"a": 1}),
        ],
    )
    def test_what_other_servers_do_is_refused_by_name(
        self, read: Read, field: str, value: object
    ) -> None:
        with pytest.raises(UnsupportedParameter) as refusal:
            read(**{field: value}).ask()
        assert refusal.value.param == field

    @pytest.mark.parametrize("read", [chat, completion])
    def test_what_others_send_though_it_asks_for_nothing_is_harmless(self, read: Read) -> None:
        sent: dict[str, object] = {
            "chat_template": None,
            "regex": "",
            "samplers": [],
            "grammar": "",
            "include_reasoning": True,
            "length_penalty": 1.0,
            "mirostat": 0,
            "n_predict": -1,
            "priority": 0,
            "repeat_penalty": 1.0,
            "request_id": "r",
            "separate_reasoning": True,
            "stream_interval": 4,
            "truncation_side": "left",
            "repeat_last_n": 64,
            "rid": ["a"],
            "spaces_between_special_tokens": True,
            "use_beam_search": False,
        }
        assert read(**sent).ask() == read().ask()

    @pytest.mark.parametrize("read", [chat, completion])
    @pytest.mark.parametrize(
        ("field", "value", "path"),
        [
            ("allowed_token_ids", {}, "allowed_token_ids"),
            ("allowed_token_ids", [-1], "allowed_token_ids.0"),
            ("bad_words", ["a", ""], "bad_words.1"),
            ("bad_words", ["a"] * 257, "bad_words"),
            ("bad_words", "a", "bad_words"),
            ("cache_salt", 1, "cache_salt"),
            ("length_penalty", "a", "length_penalty"),
            ("metadata", "a", "metadata"),
            ("metadata", {"a": 1}, "metadata.a"),
            ("priority", "high", "priority"),
            ("prompt_cache_key", 1, "prompt_cache_key"),
            ("rid", [1], "rid.0"),
            ("service_tier", 1, "service_tier"),
            ("include_stop_str_in_output", 1, "include_stop_str_in_output"),
            ("min_tokens", -1, "min_tokens"),
            ("prompt_logprobs", -1, "prompt_logprobs"),
            ("prompt_logprobs", 21, "prompt_logprobs"),
            ("skip_special_tokens", "no", "skip_special_tokens"),
            ("stop_token_ids", ["a"], "stop_token_ids.0"),
            ("truncate_prompt_tokens", 0, "truncate_prompt_tokens"),
            ("truncate_prompt_tokens", -2, "truncate_prompt_tokens"),
        ],
    )
    def test_wrong_extensions_are_named(
        self, read: Read, field: str, value: object, path: str
    ) -> None:
        assert refused_at({field: value}, read) == {path}

    @pytest.mark.parametrize("read", [chat, completion])
    def test_values_that_clients_fill_up_with_are_harmless(self, read: Read) -> None:
        filled: dict[str, object] = {
            "add_generation_prompt": True,
            "add_special_tokens": None,
            "allowed_token_ids": None,
            "bad_words": [],
            "cache_salt": "",
            "documents": [],
            "continue_final_message": False,
            "include_stop_str_in_output": False,
            "min_tokens": 0,
            "prediction": None,
            "prompt_logprobs": None,
            "return_tokens_as_token_ids": False,
            "skip_special_tokens": True,
            "stop_token_ids": [],
            "truncate_prompt_tokens": None,
        }
        assert read(**filled).ask() == read().ask()

    def test_best_of_n_is_no_further_wish(self) -> None:
        assert completion(best_of=2, n=2).ask() == completion(n=2).ask()

    @pytest.mark.parametrize(
        ("field", "right"),
        [
            ("tools", list),
            ("functions", list),
            ("tool_choice", (str, dict)),
            ("response_format", dict),
            ("parallel_tool_calls", bool),
            ("reasoning_effort", ()),
            ("chat_template_kwargs", dict),
            ("audio", dict),
            ("modalities", list),
            ("moderation", dict),
            ("prediction", dict),
            ("continue_final_message", bool),
            ("verbosity", str),
            ("web_search_options", dict),
            ("store", bool),
            ("metadata", dict),
            ("stop", (str, list)),
            ("guided_json", (str, dict)),
            ("guided_regex", ()),
            ("guided_choice", ()),
            ("structured_outputs", dict),
            ("adapter", ()),
        ],
    )
    def test_empty_values_of_a_wrong_type_are_wrong(
        self, field: str, right: type | tuple[type, ...]
    ) -> None:
        values: tuple[object, ...] = (0, False, "", [], {})
        for value in values:
            if not isinstance(value, right):
                assert {path.split(".")[0] for path in refused_at({field: value})} == {field}

    def test_a_body_of_a_million_wrong_values_is_one_error(self) -> None:
        many = [0] * 1_000_000
        for field in ("stop", "messages", "tools", "functions", "modalities", "guided_choice"):
            with pytest.raises(ValidationError) as refusal:
                chat(**{field: many})
            assert refusal.value.error_count() == 1
        with pytest.raises(ValidationError) as refusal:
            chat(metadata=dict.fromkeys(map(str, range(200_000)), 0))
        assert refusal.value.error_count() == 1

    @pytest.mark.parametrize(
        ("read", "fields", "path"),
        [
            (chat, {"messages": [USER] * 8193}, "messages"),
            (
                chat,
                {"messages": [{"role": "user", "content": [part("")] * 1025}]},
                "messages.0.content",
            ),
            (completion, {"prompt": ["a"] * 129}, "prompt"),
            (completion, {"prompt": [[1]] * 129}, "prompt"),
        ],
    )
    def test_lists_are_bounded(self, read: Read, fields: dict[str, object], path: str) -> None:
        assert refused_at(fields, read) == {path}

    @pytest.mark.parametrize("samples", [{"n": 3}, {"best_of": 3}])
    def test_prompts_times_samples_are_bounded(self, samples: dict[str, object]) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            completion(prompt=["a"] * 43, **samples).ask()
        assert refusal.value.param == "prompt"
        assert len(items(completion(prompt=["a"] * 42, **samples).ask())) == 126

    @pytest.mark.parametrize("value", [5, ["a", "b", "c", "d", "e"], [1]])
    def test_what_is_said_of_stop_is_not_said_in_python(self, value: object) -> None:
        body = json.dumps({"model": "m", "prompt": "x", "stop": value}).encode()
        with pytest.raises(ValidationError) as refusal:
            COMPLETIONS.read(Incoming(body=body))
        error = invalid_request(refusal.value, body)
        assert error.message.startswith("stop")
        assert "tuple" not in error.message.lower()


def test_the_schema_shows_the_unions_that_callers_may_send() -> None:
    assert CHAT.request is not None
    assert COMPLETIONS.request is not None
    fields = CHAT.request.model_json_schema()["properties"]
    assert {branch.get("type") for branch in fields["stop"]["anyOf"]} == {"array", "string", "null"}
    prompts = COMPLETIONS.request.model_json_schema()["properties"]["prompt"]["anyOf"]
    assert [branch["type"] for branch in prompts] == ["string", "array", "array", "array"]


@pytest.mark.parametrize("route", routes, ids=lambda route: route.path)
def test_the_example_of_each_route_is_valid(route: Route) -> None:
    body = json.dumps({"model": "m", **route.example}).encode()
    assert route.read(Incoming(body=body)).ask().model == "m"
