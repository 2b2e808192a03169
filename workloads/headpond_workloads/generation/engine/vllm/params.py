"""What an item asks for, in the words of vLLM's sampling parameters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headpond.errors import InvalidRequest, UnsupportedParameter
from headpond_workloads.generation.engine.sampler import GREEDY_BELOW, SEED_MASK
from headpond_workloads.generation.engine.sequence import Prepared
from headpond_workloads.generation.engine.vllm.wire import Sampled
from headpond_workloads.generation.items import GenerationItem

LEAST_TEMPERATURE = 0.01
"""Temperatures above 0 that are lower vLLM takes for this one."""


def check_item(item: GenerationItem, eos_ids: Collection[int]) -> None:
    """Refuse what vLLM can't do, or does in another way.

    Args:
        item: What is asked for.
        eos_ids: The tokens that end every output that does not ignore them.

    Raises:
        InvalidRequest: Names the field.
    """
    rules = item.rules
    calls = bool(item.prompt.tools) and item.tool_choice != "none"
    if item.constraint is not None:
        raise _refusal("output can't be held to a form", item.constraint.param)
    if calls and item.tool_choice != "auto":
        raise _refusal('it can\'t be made to call a tool; leave it "auto"', "tool_choice")
    if calls and any(tool.strict for tool in item.prompt.tools):
        raise _refusal("strict arguments can't be held", "tools")
    if GREEDY_BELOW <= item.sampling.temperature < LEAST_TEMPERATURE:
        raise _refusal(f"it must be 0, or {LEAST_TEMPERATURE} at least", "temperature")
    if rules.allowed_ids and rules.bad_words:
        raise _refusal("bad_words don't go with allowed_token_ids", "bad_words")
    if (
        rules.min_tokens
        and rules.allowed_ids
        and {*eos_ids, *item.stop_ids} >= {*rules.allowed_ids}
    ):
        raise InvalidRequest(
            "allowed_token_ids and min_tokens together leave no token", param="allowed_token_ids"
        )


def sampled_of(prepared: Prepared, eos_ids: Sequence[int]) -> Sampled:
    """Return how a sequence's tokens are chosen, and what ends it but stop strings.

    Args:
        prepared: The sequence.
        eos_ids: The tokens that end every output that does not ignore them.
    """
    item, sampling = prepared.item, prepared.item.sampling
    return {
        "temperature": 0.0 if sampling.temperature < GREEDY_BELOW else sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "seed": None if sampling.seed is None else sampling.seed & SEED_MASK,
        "max_tokens": max(1, prepared.max_output_tokens),
        "min_tokens": item.rules.min_tokens,
        "stop_token_ids": [*(() if item.ignore_eos else eos_ids), *item.stop_ids],
        "allowed_token_ids": item.rules.allowed_ids or None,
        "logprobs": item.logprobs,
        "prompt_logprobs": item.prompt_logprobs,
    }


def _refusal(reason: str, param: str) -> UnsupportedParameter:
    return UnsupportedParameter(f"this model is served by vLLM: {reason}", param=param)
