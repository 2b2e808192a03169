"""Echoed prompts and the best of several samples."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from openai.types import Completion as OpenAiCompletion

from headpond.call import Output
from headpond.dialect import Exchange, Heading, Incoming, ItemEvent, rendered
from headpond.units import Work
from headpond_workloads.generation.dialects import routes
from headpond_workloads.generation.items import (
    ChosenToken,
    GenerationItem,
    TextDelta,
    TokenLogprob,
    TokenUsage,
)

HEADING = Heading(request_id="r-1", created_s=1, model="chat", fingerprint="m@1+abc")


def completion(**fields: object) -> Exchange:
    return routes[1].read(
        Incoming(body=json.dumps({"model": "m", "prompt": "x", **fields}).encode())
    )


def items(exchange: Exchange) -> list[GenerationItem]:
    return [item for item in exchange.ask().items if isinstance(item, GenerationItem)]


def token(text: str, logprob: float | None) -> ChosenToken:
    likeliest = () if logprob is None else (TokenLogprob("?", 9, -0.1, b"?"),)
    return ChosenToken(TokenLogprob(text, 1, logprob, text.encode()), likeliest)


def prompt(text: str, tokens: Sequence[ChosenToken] = ()) -> TextDelta:
    return TextDelta(text=text, logprobs=tuple(tokens), is_prompt=True)


def ended(text: str, *logprobs: float, completion_tokens: int = 1) -> TextDelta:
    usage = TokenUsage(prompt_tokens=2, completion_tokens=completion_tokens)
    return TextDelta(
        text=text,
        logprobs=tuple(token(text, each) for each in logprobs),
        finish_reason="length",
        usage=usage,
    )


def read(exchange: Exchange, events: Sequence[ItemEvent]) -> OpenAiCompletion:
    body = rendered(exchange.body(HEADING, events, Work())).content
    return OpenAiCompletion.model_validate_json(body)


class TestEcho:
    def test_what_is_asked_for(self) -> None:
        (plain,) = items(completion(echo=True))
        assert (plain.echo, plain.prompt_logprobs, plain.logprobs) == (True, None, None)
        (scored,) = items(completion(echo=True, logprobs=2, max_tokens=0))
        assert (scored.echo, scored.prompt_logprobs, scored.logprobs) == (True, 2, 2)
        assert scored.max_output_tokens == 0

    def test_the_prompt_comes_first(self) -> None:
        events = [Output(0, prompt("ab")), Output(0, ended("c"))]
        assert read(completion(echo=True), events).choices[0].text == "abc"

    def test_a_scored_prompt_to_the_letter(self) -> None:
        scored = prompt("ab", [token("a", None), token("b", -2.0)])
        events = [Output(0, scored), Output(0, ended("", completion_tokens=0))]
        exchange = completion(echo=True, logprobs=1, max_tokens=0)
        body = json.loads(rendered(exchange.body(HEADING, events, Work())).content)
        assert body["choices"] == [
            {
                "index": 0,
                "text": "ab",
                "logprobs": {
                    "tokens": ["a", "b"],
                    "token_logprobs": [None, -2.0],
                    "top_logprobs": [None, {"?": -0.1, "b": -2.0}],
                    "text_offset": [0, 1],
                },
                "finish_reason": "length",
            }
        ]
        assert body["usage"]["completion_tokens"] == 0

    def test_control_tokens_have_their_own_spelling(self) -> None:
        mark = "<|im_start|>"
        chosen = ChosenToken(
            TokenLogprob(mark, 2, -3.0, mark.encode()), (TokenLogprob("<|im_end|>", 3, -0.1, b""),)
        )
        scored = prompt(
            f"a {mark}b", [token("a", -1.0), token(" ", -1.0), chosen, token("b", -2.0)]
        )
        events = [Output(0, scored), Output(0, ended("", completion_tokens=0))]
        (choice,) = read(completion(echo=True, logprobs=1, max_tokens=0), events).choices
        assert choice.logprobs is not None
        assert choice.logprobs.tokens == ["a", " ", mark, "b"]
        assert choice.logprobs.text_offset == [0, 1, 2, 14]
        assert choice.logprobs.top_logprobs is not None
        assert choice.logprobs.top_logprobs[2] == {"<|im_end|>": -0.1, mark: -3.0}

    def test_offsets_go_on_after_the_prompt_in_a_stream(self) -> None:
        exchange = completion(echo=True, logprobs=1, stream=True)
        writer = exchange.stream(HEADING)
        scored = prompt("ab", [token("a", None), token("b", -2.0)])
        events = [*writer.write([Output(0, scored)]), *writer.write([Output(0, ended("c", -1.0))])]
        first, second, _ = (json.loads(event.data)["choices"][0] for event in events)
        assert (first["text"], second["text"]) == ("ab", "c")
        assert first["logprobs"]["token_logprobs"] == [None, -2.0]
        assert second["logprobs"]["text_offset"] == [2]


class TestBestOf:
    def test_samples_are_drawn_and_scored(self) -> None:
        made = items(completion(best_of=3, seed=5))
        assert [(item.logprobs, item.sampling.seed) for item in made] == [(0, 5), (0, 6), (0, 7)]
        assert [item.logprobs for item in items(completion(best_of=3, logprobs=4))] == [4] * 3

    def test_the_likeliest_per_token_are_shown(self) -> None:
        events = [
            Output(0, ended("poor", -2.0)),
            Output(1, ended("long", -0.5, -0.5, -0.5, completion_tokens=3)),
            Output(2, ended("none")),
            Output(3, ended("fair", -1.0)),
        ]
        found = read(completion(best_of=4, n=3), events)
        assert [(choice.index, choice.text) for choice in found.choices] == [
            (0, "long"),
            (1, "fair"),
            (2, "poor"),
        ]
        assert found.choices[0].logprobs is None
        assert found.usage is not None
        assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (2, 6)

    def test_each_prompt_has_its_own_best(self) -> None:
        events = [Output(at, ended(f"t{at}", -each)) for at, each in enumerate([1, 2, 2, 1])]
        found = read(completion(prompt=["a", "b"], best_of=2), events)
        assert [choice.text for choice in found.choices] == ["t0", "t3"]

    def test_an_echoed_prompt_does_not_count(self) -> None:
        likely = prompt("p", [token("p", None), token("q", -0.01)])
        events = [
            Output(0, likely),
            Output(0, ended("poor", -3.0)),
            Output(1, ended("fair", -1.0)),
        ]
        found = read(completion(best_of=2, echo=True, logprobs=0), events)
        assert found.choices[0].text == "fair"

    @pytest.mark.parametrize("fields", [{"n": 2}, {"n": 2, "stream": True}])
    def test_best_of_n_keeps_the_order(self, fields: dict[str, object]) -> None:
        exchange = completion(best_of=2, **fields)
        assert [item.logprobs for item in items(exchange)] == [None, None]
        events = [Output(0, ended("a", -9.0)), Output(1, ended("b", -1.0))]
        assert [choice.text for choice in read(exchange, events).choices] == ["a", "b"]
