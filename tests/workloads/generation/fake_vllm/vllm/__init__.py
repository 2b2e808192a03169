"""As much of vLLM as the child of an engine asks for, over a model that takes no time.

A token follows from the two before it (`follower`). Prompts with one of the `TROUBLES` fail in
their own ways. What is asked for is written to the file `FAKE_VLLM_LOG` names, line by line.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass, field

from .inputs import TokensInput
from .sampling_params import RequestOutputKind, SamplingParams

__all__ = ["EngineArgs", "LLMEngine", "RequestOutputKind", "SamplingParams"]
__version__ = "0.0.0"

VOCAB = 400
STEP_TOKENS, PREEMPTS_EVERY = 24, 11
"""A step computes little, and now and then the newest request has to be computed again."""

DIES, RAISES, HANGS, IS_REFUSED, IS_NAN = 390, 391, 392, 393, 394


def follower(first: int, second: int) -> int:
    return (7 * first + 3 * second + 1) % 380


def log(**line: object) -> None:
    if path := os.environ.get("FAKE_VLLM_LOG"):
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps(line) + "\n")


class EngineArgs:
    def __init__(self, **args: object) -> None:
        self.__dict__ |= args
        log(start=args)
        print("what vLLM prints goes to the log")


@dataclass
class Logprob:
    logprob: float


@dataclass
class PrefillStats:
    num_cached_tokens: int = 0


@dataclass
class Request:
    request_id: str
    prompt_token_ids: list[int]
    salt: str | None
    params: SamplingParams
    token_ids: list[int]
    num_computed_tokens: int = 0
    fresh: bool = True
    cached: int = 0
    num_nans_in_logits: int = 0
    prefill_stats: PrefillStats | None = field(default_factory=PrefillStats)

    @property
    def scores_prompt(self) -> bool:
        return self.params.prompt_logprobs is not None


@dataclass
class Completion:
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None


@dataclass
class RequestOutput:
    request_id: str
    outputs: list[Completion]
    finished: bool
    num_cached_tokens: int
    prompt_logprobs: list[dict[int, Logprob] | None] | None


class Scheduler:
    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}


class LLMEngine:
    def __init__(self, args: EngineArgs) -> None:
        self.args = args
        self.engine_core = self.vllm_config = self.cache_config = self
        self.scheduler = Scheduler()
        self.num_gpu_blocks: int = vars(args)["num_gpu_blocks_override"]
        self.block_tokens: int = vars(args)["block_size"]
        self.steps = 0
        self.found: set[tuple[str | None, tuple[int, ...]]] = set()

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> LLMEngine:
        return cls(args)

    def add_request(self, request_id: str, prompt: TokensInput, params: SamplingParams) -> str:
        token_ids = prompt["prompt_token_ids"]
        if IS_REFUSED in token_ids:
            raise ValueError(request_id)
        log(add=int(request_id), params=params.given, salt=prompt["cache_salt"])
        name = f"{request_id}-inside"
        self.scheduler.requests[name] = Request(
            request_id, token_ids, prompt["cache_salt"], params, list(token_ids)
        )
        return name

    def abort_request(self, request_ids: list[str]) -> None:
        for request_id in request_ids:
            if self.scheduler.requests.pop(f"{request_id}-inside", None) is not None:
                log(abort=int(request_id))

    def step(self) -> list[RequestOutput]:
        budget = STEP_TOKENS
        self.steps += 1
        if self.steps % PREEMPTS_EVERY == 0:
            [*_, newest] = self.scheduler.requests.values()
            newest.num_computed_tokens = 0
        outputs = []
        for request in list(self.scheduler.requests.values()):
            if request.fresh:
                request.fresh = False
                stats = request.prefill_stats or PrefillStats()
                request.cached = 0 if request.scores_prompt else self._cached(request)
                stats.num_cached_tokens = request.cached
                request.num_computed_tokens = request.cached
            chunk = min(budget, len(request.token_ids) - request.num_computed_tokens)
            budget -= chunk
            request.num_computed_tokens += chunk
            if chunk and request.num_computed_tokens == len(request.token_ids):
                outputs.append(self._draw(request))
        return outputs

    def _cached(self, request: Request) -> int:
        most = (len(request.prompt_token_ids) - 1) // self.block_tokens
        sizes = [at * self.block_tokens for at in range(most, 0, -1)]
        whole = tuple(request.prompt_token_ids)
        return next((each for each in sizes if (request.salt, whole[:each]) in self.found), 0)

    def _draw(self, request: Request) -> RequestOutput:
        params, prompt = request.params, request.prompt_token_ids
        if len(request.token_ids) > len(prompt):  # amid its output
            if DIES in prompt:
                os._exit(7)
            if RAISES in prompt:
                raise RuntimeError("out of memory")
            if HANGS in prompt:
                time.sleep(600)
            request.num_nans_in_logits = IS_NAN in prompt
        stats, request.prefill_stats = request.prefill_stats, None
        (*_, first, second) = (0, *request.token_ids)
        token_id = follower(first, second)
        scored = None
        if stats is not None:
            whole, size = tuple(request.prompt_token_ids), self.block_tokens
            ends = range(size, len(whole) + 1, size)
            self.found |= {(request.salt, whole[:end]) for end in ends}
            if params.prompt_logprobs is not None:
                count = params.prompt_logprobs
                scored = [None, *(likely(each, count) for each in prompt[1:])]
        request.token_ids.append(token_id)
        written = len(request.token_ids) - len(prompt)
        ends_it = token_id in params.stop_token_ids and written > params.min_tokens
        finished = ends_it or written >= params.max_tokens
        if finished:
            del self.scheduler.requests[f"{request.request_id}-inside"]
        logprobs = None if params.logprobs is None else [likely(token_id, params.logprobs)]
        completion = Completion([token_id], logprobs)
        return RequestOutput(request.request_id, [completion], finished, request.cached, scored)


def likely(token_id: int, count: int) -> dict[int, Logprob]:
    """The token that was taken is the second likeliest; as vLLM says it, it comes first."""
    likelier = (token_id + 1) % VOCAB
    others = [likelier, token_id, *((token_id + at) % VOCAB for at in range(2, 20))]
    row = {token_id: Logprob(math.log(0.25))}
    for at, each in enumerate(others[:count]):
        row[each] = Logprob(math.log(0.5 ** (at + 1)))
    return row
