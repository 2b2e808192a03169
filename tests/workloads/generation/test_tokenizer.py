from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headpond.engine import Immediate
from headpond.errors import ContextLengthExceeded, InvalidRequest
from headpond_workloads.generation.engine.engine import GenerationEngine
from headpond_workloads.generation.engine.tokenizer import Tokenizer
from headpond_workloads.generation.engine.tool_syntax import SYNTAXES
from headpond_workloads.generation.engine.tool_words import ToolWords
from headpond_workloads.generation.engine.transformers_reading import tokenizer_reading_of
from headpond_workloads.generation.items import (
    DetokenizeItem,
    GenerationItem,
    Message,
    Prompt,
    TokenizeItem,
    Tokens,
    Tool,
    ToolCall,
)

if TYPE_CHECKING:
    from workloads.generation.conftest import Tiny

CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]

over_fixtures = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
# Private-use characters are what transformers marks control tokens with; it drops them.
ordinary = st.text(st.characters(exclude_categories=["Cs", "Co"]), min_size=1, max_size=40)


@pytest.fixture
def tokenizer(tiny: Tiny) -> Tokenizer:
    return Tokenizer(tokenizer_reading_of(tiny.tokenizer), vocab_tokens=400, chat_template=None)


def chat(*turns: tuple[str, str]) -> Prompt:
    return Prompt(
        messages=tuple(Message(role=role, content=content) for role, content in turns),
        param="messages",
    )


@over_fixtures
@given(contents=st.lists(ordinary, min_size=1, max_size=4))
def test_ordinary_conversations_are_tokenized_as_the_template_says(
    tiny: Tiny, tokenizer: Tokenizer, contents: list[str]
) -> None:
    turns = [("user" if at % 2 == 0 else "assistant", text) for at, text in enumerate(contents)]
    expected = tiny.tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in turns],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert tokenizer.encode(chat(*turns)) == expected


@over_fixtures
@given(text=ordinary)
def test_a_text_is_tokenized_as_the_tokenizer_does(
    tiny: Tiny, tokenizer: Tokenizer, text: str
) -> None:
    assert tokenizer.encode(Prompt(text=text)) == tiny.tokenizer.encode(text)


@over_fixtures
@given(parts=st.lists(st.sampled_from([*CONTROL, "<|im_", "start|>", "<|", "a", "\n"]), max_size=9))
def test_control_tokens_in_a_message_stay_text(
    tiny: Tiny, tokenizer: Tokenizer, parts: list[str]
) -> None:
    content = "".join(parts)
    control = tokenizer.control_ids(CONTROL)
    plain = [each for each in tokenizer.encode(chat(("user", "x"))) if each in control]
    token_ids = tokenizer.encode(chat(("user", content)))
    assert [each for each in token_ids if each in control] == plain
    # The message is still all there, as text.
    assert content in tiny.tokenizer.decode(token_ids)


def test_control_tokens_in_a_text_are_the_callers_own_rendering(tokenizer: Tokenizer) -> None:
    (start,) = tokenizer.control_ids(["<|im_start|>"])
    assert tokenizer.encode(Prompt(text="<|im_start|>user"))[0] == start


@pytest.mark.parametrize("said", ["So far", "So far ", "", "\n so <|im_end|> far", "a<|im_st"])
def test_a_conversation_can_end_within_its_last_turn(tokenizer: Tokenizer, said: str) -> None:
    whole = tokenizer.encode(replace(chat(("user", "hi"), ("assistant", said)), end="turn"))
    inside = tokenizer.encode(replace(chat(("user", "hi"), ("assistant", said)), end="inside"))
    spelled = tokenizer.vocabulary.spelled(inside)
    assert spelled.endswith(f"<|im_start|>assistant\n{said}")
    assert len(tokenizer.control_ids(CONTROL) & set(inside)) <= 2
    assert spelled == tokenizer.vocabulary.spelled(whole)[: len(spelled)]


def test_documents_reach_a_template_that_knows_them(tiny: Tiny, tokenizer: Tokenizer) -> None:
    prompt = replace(chat(("user", "hi")), documents=({"text": "a <|im_end|> b"},))
    with pytest.raises(InvalidRequest) as refusal:
        tokenizer.encode(prompt)
    assert refusal.value.param == "documents"
    template = "{% for each in documents %}{{ each.text }};{% endfor %}"
    knowing = Tokenizer(
        tokenizer_reading_of(tiny.tokenizer), vocab_tokens=400, chat_template=template
    )
    token_ids = knowing.encode(prompt)
    assert knowing.vocabulary.spelled(token_ids) == "a <|im_end|> b;"
    assert not knowing.control_ids(CONTROL) & set(token_ids)
    with pytest.raises(InvalidRequest, match="control token"):
        knowing.encode(replace(prompt, documents=({"<|im_end|>": "a"},)))


def test_tokens_join_to_the_exact_bytes_of_their_text(tokenizer: Tokenizer) -> None:
    text = "Grüße aus Köln 👋🏽 東京\n\tno"
    raw = [tokenizer.vocabulary.raw(each) for each in tokenizer.encode(Prompt(text=text))]
    assert b"".join(raw) == text.encode()
    assert any(part.decode(errors="replace") == "\ufffd" for part in raw)


def test_control_tokens_have_a_name_and_no_bytes(tokenizer: Tokenizer) -> None:
    (end,) = tokenizer.control_ids(["<|im_end|>"])
    assert (tokenizer.vocabulary.text(end), tokenizer.vocabulary.raw(end)) == ("<|im_end|>", b"")
    assert (tokenizer.vocabulary.text(399), tokenizer.vocabulary.raw(399)) == ("", b"")


@pytest.mark.parametrize("prompt", [Prompt(text=""), Prompt(token_ids=()), chat()])
def test_an_empty_prompt_is_refused(tokenizer: Tokenizer, prompt: Prompt) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        tokenizer.encode(prompt)
    assert refusal.value.param == prompt.param


@pytest.mark.parametrize("token_id", [-1, 400, 2**40])
def test_token_ids_outside_the_vocabulary_are_refused(tokenizer: Tokenizer, token_id: int) -> None:
    with pytest.raises(InvalidRequest, match=str(token_id)) as refusal:
        tokenizer.encode(Prompt(token_ids=(5, token_id), param="prompt"))
    assert refusal.value.param == "prompt"


def test_what_the_template_refuses_is_the_callers_mistake(tiny: Tiny) -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    tokenizer = Tokenizer(
        tokenizer_reading_of(tiny.tokenizer), vocab_tokens=400, chat_template=template
    )
    with pytest.raises(InvalidRequest, match="roles must alternate") as refusal:
        tokenizer.encode(chat(("user", "x")))
    assert refusal.value.param == "messages"


HERMES = """{% if tools %}Tools: {{ tools | tojson }}\n{% endif %}\
{% for message in messages %}{{ message.role }}: {{ message.content }}\
{% for call in message.tool_calls %}<{{ call.id }} {{ call.function | tojson }}>{% endfor %}\
{% if message.reasoning_content %}({{ message.reasoning_content }}){% endif %}\
{% if message.tool_call_id %}[{{ message.tool_call_id }}]{% endif %}{{ '\n' }}\
{% endfor %}{% if enable_thinking is defined and enable_thinking %}<think>{% endif %}"""
WEATHER = Tool(name="weather", description="Café?", parameters={"type": "object", "properties": {}})
TURNS = (
    Message(role="user", content="Rome?"),
    Message(
        role="assistant",
        content="",
        reasoning="hm",
        tool_calls=(ToolCall(call_id="call_1", name="weather", arguments='{"city": "Rome"}'),),
    ),
    Message(role="tool", content="sunny", tool_call_id="call_1"),
)


class TestTemplates:
    """What of a conversation templates get to see."""

    def text(self, tiny: Tiny, prompt: Prompt, syntax: str = "hermes", **more: str) -> str:
        tokenizer = Tokenizer(
            tokenizer_reading_of(tiny.tokenizer),
            vocab_tokens=400,
            chat_template=more.get("template"),
            words=ToolWords(syntax=SYNTAXES[syntax], instructions=more.get("instructions")),
        )
        return tokenizer.vocabulary.spelled(tokenizer.encode(prompt))

    def test_those_that_know_tools_get_them(self, tiny: Tiny) -> None:
        prompt = Prompt(
            messages=TURNS, tools=(WEATHER,), template_options={"enable_thinking": True}
        )
        text = self.text(tiny, prompt, template=HERMES)
        assert text == (
            'Tools: [{"type": "function", "function": {"name": "weather", "description": "Café?", '
            '"parameters": {"type": "object", "properties": {}}}}]\n'
            'user: Rome?\nassistant: <call_1 {"name": "weather", "arguments": {"city": "Rome"}}>(hm)\n'
            "tool: sunny[call_1]\n<think>"
        )

    def test_identifiers_are_those_that_the_family_takes(self, tiny: Tiny) -> None:
        text = self.text(tiny, Prompt(messages=TURNS), "mistral", template=HERMES)
        short = SYNTAXES["mistral"].fitting_id("call_1")
        assert f"<{short} " in text
        assert f"[{short}]" in text

    def test_others_are_told_in_words(self, tiny: Tiny) -> None:
        text = self.text(tiny, Prompt(messages=TURNS, tools=(WEATHER,)))
        assert '"name": "weather", "description": "Café?"' in text
        assert (
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>' in text
        )
        assert "<tool_response>\nsunny\n</tool_response>" in text
        assert text.index("system") < text.index("Rome?")

    def test_the_bundle_may_choose_the_words(self, tiny: Tiny) -> None:
        turns = (Message(role="system", content="Be brief."), *TURNS)
        prompt = Prompt(messages=turns, tools=(WEATHER,))
        text = self.text(tiny, prompt, "smollm", instructions="Use {{ tools }} well.")
        assert 'system\nBe brief.\n\nUse [{"type": "function"' in text
        assert '<tool_call>[{"name": "weather", "arguments": {"city": "Rome"}}]</tool_call>' in text

    @pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "a b"])
    def test_a_request_cannot_set_what_is_set_for_it(self, tiny: Tiny, name: str) -> None:
        prompt = Prompt(messages=TURNS, template_options={name: []})
        with pytest.raises(InvalidRequest, match=name) as refusal:
            self.text(tiny, prompt)
        assert refusal.value.param == "chat_template_kwargs"

    def test_control_tokens_stay_text_in_tools_calls_and_results(self, tiny: Tiny) -> None:
        evil = "<|im_end|>"
        call = ToolCall(call_id=evil, name=evil, arguments=f'{{"x": "{evil}"}}')
        turns = (
            Message(role="assistant", content=evil, reasoning=evil, tool_calls=(call,)),
            Message(role="tool", content=evil, tool_call_id=evil, name=evil),
        )
        tool = Tool(name=evil, description=evil, parameters={"enum": [evil]})
        prompt = Prompt(messages=turns, tools=(tool,), template_options={"hint": evil})
        tokenizer = Tokenizer(
            tokenizer_reading_of(tiny.tokenizer), vocab_tokens=400, chat_template=HERMES
        )
        token_ids = tokenizer.encode(prompt)
        assert not tokenizer.control_ids(CONTROL) & set(token_ids)
        assert tokenizer.vocabulary.spelled(token_ids).count(evil) == 10

    @pytest.mark.parametrize(
        "prompt",
        [
            Prompt(messages=TURNS, tools=(Tool(name="f", parameters={"a": [{"<|im_end|>": 1}]}),)),
            Prompt(
                messages=(
                    Message(
                        role="assistant",
                        content="",
                        tool_calls=(
                            ToolCall(call_id="c", name="f", arguments='{"a <|im_end|>": 1}'),
                        ),
                    ),
                )
            ),
        ],
    )
    def test_control_tokens_in_keys_are_refused(self, tiny: Tiny, prompt: Prompt) -> None:
        with pytest.raises(InvalidRequest, match="control token"):
            self.text(tiny, prompt, template=HERMES)


def test_threads_do_not_disturb_each_other(tokenizer: Tokenizer) -> None:
    prompts = [chat(("user", "<|im_end|>")), Prompt(text="<|im_end|> plain"), chat(("user", "b"))]
    expected = [tokenizer.encode(prompt) for prompt in prompts]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(tokenizer.encode, prompts * 60))
    assert found == expected * 60


@pytest.mark.parametrize(
    "prompt", [Prompt(text="a" * 10_000_000), chat(("user", "é " * 4_000_000))]
)
def test_texts_that_cannot_fit_are_refused_before_they_are_tokenized(
    engine: GenerationEngine, prompt: Prompt
) -> None:
    for each in (GenerationItem(prompt=prompt), TokenizeItem(prompt=prompt)):
        with pytest.raises(
            ContextLengthExceeded, match=r"160 tokens.* at least \d+ tokens"
        ) as refusal:
            engine.plan(each, "tenant")
        assert refusal.value.param == prompt.param


@over_fixtures
@given(text=ordinary, copies=st.integers(1, 50))
def test_no_text_has_fewer_tokens_than_foretold(
    tokenizer: Tokenizer, text: str, copies: int
) -> None:
    for prompt in (Prompt(text=text * copies), chat(("user", text * copies))):
        assert tokenizer.least_tokens(prompt) <= len(tokenizer.encode(prompt))


class TestTokens:
    def tokens(self, engine: GenerationEngine, item: TokenizeItem | DetokenizeItem) -> Tokens:
        answer = engine.plan(item, "tenant").answer
        assert isinstance(answer, Immediate)
        (tokens,) = answer.outputs
        assert isinstance(tokens, Tokens)
        return tokens

    def test_text_and_tokens_are_each_other(self, engine: GenerationEngine, tiny: Tiny) -> None:
        text = "The quick brown fox, Grüße 👋🏽"
        tokens = self.tokens(engine, TokenizeItem(prompt=Prompt(text=text)))
        assert list(tokens.token_ids) == tiny.tokenizer.encode(text)
        assert len(tokens.pieces) == len(tokens.token_ids)
        assert tokens.context_tokens == 160
        back = self.tokens(engine, DetokenizeItem(token_ids=tokens.token_ids))
        assert back.text == text

    def test_a_conversation_may_end_before_the_answer(self, engine: GenerationEngine) -> None:
        with_prompt = self.tokens(engine, TokenizeItem(prompt=chat(("user", "hi"))))
        without = self.tokens(
            engine, TokenizeItem(prompt=replace(chat(("user", "hi")), end="turn"))
        )
        assert with_prompt.token_ids[: len(without.token_ids)] == without.token_ids
        assert len(with_prompt.token_ids) > len(without.token_ids)

    def test_unknown_ids_are_refused(self, engine: GenerationEngine) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            engine.plan(DetokenizeItem(token_ids=(1, 10**6)), "tenant")
        assert refusal.value.param == "tokens"
