"""Tokens of prompts and the text of tokens."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from headpond.call import Done, Failed, Output
from headpond.dialect import Exchange, Heading, Incoming, ItemEvent, rendered
from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond.http.errors import invalid_request
from headpond.units import Work
from headpond_workloads.generation.dialects import routes
from headpond_workloads.generation.items import (
    DetokenizeItem,
    Message,
    Prompt,
    TokenizeItem,
    Tokens,
)

TOKENIZE, DETOKENIZE = routes[3], routes[4]
HEADING = Heading(request_id="r-1", created_s=1, model="chat", fingerprint="m@1+abc")
FOUND = Tokens(token_ids=(5, 7), pieces=("a", "b"), text="ab", context_tokens=64)
EVENTS: list[ItemEvent] = [Output(0, FOUND), Done(0, Work())]
USER = {"role": "user", "content": "hi"}


def tokenize(**fields: object) -> Exchange:
    return TOKENIZE.read(Incoming(body=json.dumps({"model": "m", **fields}).encode()))


def detokenize(**fields: object) -> Exchange:
    return DETOKENIZE.read(Incoming(body=json.dumps({"model": "m", **fields}).encode()))


def body_of(exchange: Exchange) -> dict[str, object]:
    found = json.loads(rendered(exchange.body(HEADING, EVENTS, Work())).content)
    assert isinstance(found, dict)
    return found


def test_a_prompt() -> None:
    exchange = tokenize(prompt="ab")
    assert exchange.ask().items == (TokenizeItem(prompt=Prompt(text="ab")),)
    assert not exchange.ask().stream
    assert body_of(exchange) == {
        "count": 2,
        "max_model_len": 64,
        "tokens": [5, 7],
        "token_strs": None,
    }


def test_the_pieces_when_asked_for() -> None:
    exchange = tokenize(prompt="ab", return_token_strs=True, add_special_tokens=False)
    (item,) = exchange.ask().items
    assert isinstance(item, TokenizeItem)
    assert not item.prompt.add_special_tokens
    body = body_of(exchange)
    assert body["token_strs"] == ["a", "b"]


def test_a_conversation() -> None:
    (item,) = tokenize(messages=[USER], add_generation_prompt=False).ask().items
    assert isinstance(item, TokenizeItem)
    assert item.prompt.messages == (Message(role="user", content="hi"),)
    assert item.prompt.param == "messages"
    assert item.prompt.end == "turn"


def test_the_text_of_tokens() -> None:
    exchange = detokenize(tokens=[5, 7])
    assert exchange.ask().items == (DetokenizeItem(token_ids=(5, 7)),)
    assert body_of(exchange) == {"prompt": "ab"}


def test_no_tokens_have_no_text() -> None:
    assert detokenize(tokens=[]).ask().items == (DetokenizeItem(token_ids=()),)


def test_a_failure_is_passed_on() -> None:
    with pytest.raises(InvalidRequest, match="outside"):
        detokenize(tokens=[1]).body(HEADING, [Failed(0, InvalidRequest("outside"))], Work())


@pytest.mark.parametrize(
    ("exchange", "param"),
    [(tokenize(), "prompt"), (tokenize(prompt="a", messages=[USER]), "messages")],
)
def test_exactly_one_of_prompt_and_messages(exchange: Exchange, param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        exchange.ask()
    assert refusal.value.param == param


def test_going_on_with_the_last_message() -> None:
    (item,) = tokenize(messages=[USER], continue_final_message=True).ask().items
    assert isinstance(item, TokenizeItem)
    assert item.prompt.end == "inside"
    plain = tokenize(messages=[USER])
    assert tokenize(messages=[USER], continue_final_message=False).ask() == plain.ask()


def test_special_tokens_for_a_conversation_are_refused() -> None:
    with pytest.raises(UnsupportedParameter) as refusal:
        tokenize(messages=[USER], add_special_tokens=True).ask()
    assert refusal.value.param == "add_special_tokens"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tokens": [1, "2"]}, "tokens.1"),
        ({"tokens": [-1]}, "tokens.0"),
        ({"tokens": [True]}, "tokens.0"),
        ({"tokens": 0}, "tokens"),
        ({}, "tokens"),
        ({"tokens": ["x"] * 500_000}, "tokens.0"),
    ],
)
def test_wrong_tokens_are_named(fields: dict[str, object], param: str) -> None:
    body = json.dumps({"model": "m", **fields}).encode()
    with pytest.raises(ValidationError) as refusal:
        DETOKENIZE.read(Incoming(body=body))
    assert refusal.value.error_count() == 1
    assert invalid_request(refusal.value, body).param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [USER], "chat_template": "{{ messages }}"}, "chat_template"),
        ({"messages": [USER], "documents": [{"text": "a"}]}, "documents"),
        ({"messages": [USER], "reasoning_effort": "low"}, "reasoning_effort"),
        ({"prompt": "a", "truncate_prompt_tokens": 3}, "truncate_prompt_tokens"),
        ({"content": "a"}, "content"),
        ({"prompt": "a", "with_pieces": True}, "with_pieces"),
    ],
)
def test_what_would_change_the_tokens_is_refused_by_name(
    fields: dict[str, object], param: str
) -> None:
    with pytest.raises(UnsupportedParameter) as refusal:
        tokenize(**fields).ask()
    assert refusal.value.param == param


def test_what_would_not_is_ignored() -> None:
    assert tokenize(prompt="a", max_tokens=5, documents=[]).ask() == tokenize(prompt="a").ask()
