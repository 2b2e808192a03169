"""What crosses process borders comes out the same."""

from __future__ import annotations

import pickle

from headpond.call import Output
from headpond_workloads.generation.items import ChosenToken, TextDelta, TokenLogprob, TokenUsage


def test_a_delta_survives_the_way_to_the_router() -> None:
    token = TokenLogprob("é", 7, -0.5, "é".encode())
    delta = TextDelta(
        text="é",
        token_ids=(7,),
        logprobs=(ChosenToken(token, (token,)),),
        finish_reason="stop",
        usage=TokenUsage(prompt_tokens=3, completion_tokens=1, cached_tokens=2),
    )
    assert pickle.loads(pickle.dumps(Output(2, delta))) == Output(2, delta)  # noqa: S301
