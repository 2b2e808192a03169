from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headpond.errors import InvalidRequest
from headpond_workloads.generation.engine.tokenizer import Tokenizer
from headpond_workloads.generation.items import Message, Prompt

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
    return Tokenizer(tiny.tokenizer, vocab_tokens=400, chat_template=None)


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
    tokenizer = Tokenizer(tiny.tokenizer, vocab_tokens=400, chat_template=template)
    with pytest.raises(InvalidRequest, match="roles must alternate") as refusal:
        tokenizer.encode(chat(("user", "x")))
    assert refusal.value.param == "messages"


def test_threads_do_not_disturb_each_other(tokenizer: Tokenizer) -> None:
    prompts = [chat(("user", "<|im_end|>")), Prompt(text="<|im_end|> plain"), chat(("user", "b"))]
    expected = [tokenizer.encode(prompt) for prompt in prompts]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(tokenizer.encode, prompts * 60))
    assert found == expected * 60
