"""vLLM for a replica, in vLLM's own environment; run by its path, with `-I`.

It imports nothing of ours: the environment has vLLM and what that needs. `wire` says what the
lines mean that it reads and writes. Whatever fails ends it, and so does the end of its input:
then there is no replica any more.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from headpond_workloads.generation.engine.vllm.wire import (
        Ask,
        Likely,
        News,
        Reply,
        Request,
        Start,
        Started,
    )


class _PrefillStats(Protocol):
    num_cached_tokens: int


class _Request(Protocol):
    """What is read of `vllm.v1.request.Request`; the statistics go with the first token."""

    num_computed_tokens: int
    num_nans_in_logits: int
    prompt_token_ids: Sequence[int]
    prefill_stats: _PrefillStats | None


class _Logprob(Protocol):
    logprob: float


class _Completion(Protocol):
    token_ids: Sequence[int]
    logprobs: Sequence[Mapping[int, _Logprob]] | None


class _Output(Protocol):
    """What is read of `vllm.RequestOutput`."""

    request_id: str
    num_cached_tokens: int | None
    prompt_logprobs: Sequence[Mapping[int, _Logprob] | None] | None
    outputs: Sequence[_Completion]
    finished: bool


class Core:
    """vLLM's engine, and the requests that it has."""

    def __init__(self, start: Start) -> None:
        """Load a model."""
        from vllm import EngineArgs, LLMEngine  # noqa: PLC0415 - here alone, in its environment

        blocks = start["blocks"] + 1  # vLLM keeps one for itself
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=start["folder"],
                skip_tokenizer_init=True,
                dtype=start["dtype"],
                max_model_len=start["context_tokens"],
                block_size=start["block_tokens"],
                num_gpu_blocks_override=blocks,
                kv_cache_memory_bytes=blocks * start["block_bytes"],
                max_num_seqs=start["max_slots"],
                max_num_batched_tokens=start["step_tokens"],
                tensor_parallel_size=start["tensor_parallel"],
                enable_prefix_caching=start["prefix_cache"],
                enforce_eager=start["eager"],
                enable_chunked_prefill=True,
                async_scheduling=False,
                logprobs_mode="raw_logprobs",
                generation_config="vllm",
                disable_log_stats=True,
            )
        )
        self._core = self._engine.engine_core.engine_core
        self._requests: dict[int, tuple[Request, _Request]] = {}

    def started(self) -> Started:
        """Return what there is."""
        from vllm import __version__  # noqa: PLC0415

        cache = self._engine.vllm_config.cache_config
        return {"version": __version__, "blocks": cache.num_gpu_blocks - 1}

    def step(self, ask: Ask) -> Reply:
        """Do what is asked, and return what came of it."""
        self._engine.abort_request([str(number) for number in ask["abort"]])
        for number in ask["abort"]:
            self._requests.pop(number, None)
        news: list[News] = []
        for asked in ask["add"]:
            try:
                self._add(asked)
            except ValueError:
                traceback.print_exc()
                news.append({"number": asked["number"], "failed": "refused"})
        if self._requests:
            news += [self._told(output) for output in self._engine.step()]
        for number, (_, request) in self._requests.items():
            stats = request.prefill_stats
            if stats is not None:  # nothing is generated yet
                computed, cached = request.num_computed_tokens, stats.num_cached_tokens
                news.append({"number": number, "computed": computed, "cached": cached})
        return {"news": news}

    def _add(self, asked: Request) -> None:
        from vllm import SamplingParams  # noqa: PLC0415
        from vllm.inputs import tokens_input  # noqa: PLC0415
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

        params = SamplingParams(
            **asked["sampled"],
            logit_bias=dict(asked["logit_bias"]) or None,
            ignore_eos=True,  # the stop tokens say what ends it
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        # What vLLM gets from its tokenizer, which it does not have here.
        params._all_stop_token_ids.update(asked["end_ids"])  # noqa: SLF001
        params._bad_words_token_ids = asked["bad_words"]  # noqa: SLF001
        prompt = tokens_input(asked["token_ids"], cache_salt=asked["salt"])
        name = self._engine.add_request(str(asked["number"]), prompt, params)
        self._requests[asked["number"]] = (asked, self._core.scheduler.requests[name])

    def _told(self, output: _Output) -> News:
        number = int(output.request_id)
        asked, request = self._requests[number]
        if output.finished:
            del self._requests[number]
        if request.num_nans_in_logits:
            self._engine.abort_request([output.request_id])
            self._requests.pop(number, None)
            return {"number": number, "failed": "not finite"}
        completion, sampled = output.outputs[0], asked["sampled"]
        scored = [row for row in output.prompt_logprobs or () if row is not None]
        return {
            "number": number,
            "computed": request.num_computed_tokens,
            "cached": output.num_cached_tokens or 0,
            "token_ids": list(completion.token_ids),
            "likely": _likely(completion.logprobs, completion.token_ids, sampled["logprobs"]),
            "prompt": _likely(scored, asked["token_ids"][1:], sampled["prompt_logprobs"]),
            "finished": output.finished,
        }


def _likely(
    rows: Sequence[Mapping[int, _Logprob]] | None, token_ids: Sequence[int], count: int | None
) -> list[Likely]:
    """Return each token with its log-probability, then the `count` likeliest."""
    if count is None or not rows:
        return []
    likely: list[Likely] = []
    for token_id, row in zip(token_ids, rows, strict=True):
        pairs = sorted(((each, row[each].logprob) for each in row), key=lambda pair: -pair[1])
        # The token itself is there in any case: it is one too many where it is none of these.
        top = pairs if len(pairs) <= count else [pair for pair in pairs if pair[0] != token_id]
        likely.append([(token_id, row[token_id].logprob), *top])
    return likely


def _own_output() -> TextIO:
    """Return where the replica reads; whatever else is printed goes to the log."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _listen(lines: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


def _fail(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End at once: vLLM's own threads would keep a process that can't go on.

    torch calls this with another `sys.stderr`, of which it would print later.
    """
    traceback.print_exception(kind, error, trace, file=sys.__stderr__)
    os._exit(1)


def main() -> None:
    """Answer line by line until the input ends."""
    sys.excepthook = _fail
    answers = _own_output()
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(lines,), daemon=True).start()

    def answer(value: Started | Reply) -> None:
        answers.write(f"{json.dumps(value)}\n")
        answers.flush()

    core = Core(json.loads(lines.get()))
    answer(core.started())
    while True:
        answer(core.step(json.loads(lines.get())))


if __name__ == "__main__":
    main()
