"""A process with vLLM that dies or stands still: callers are told, and may ask again."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from headpond.call import Call, Failed, Output
from headpond.errors import NotReady, WorkerLost
from headpond.scheduling.answer import LoopAnswer
from headpond.scheduling.loop import Loop, loop_for
from headpond_workloads.generation.engine.vllm import process
from headpond_workloads.generation.engine.vllm.process import VllmProcess
from headpond_workloads.generation.engine.vllm.wire import Start
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling, TextDelta
from headpond_workloads.generation.record import record
from workloads.generation.fake_vllm.vllm import DIES, HANGS, RAISES
from workloads.generation.orphans import SOON_S, require_no_orphan
from workloads.generation.vllm_engines import BLOCK_BYTES, fake_python, vllm_engine, written

if TYPE_CHECKING:
    from workloads.generation.conftest import Tiny

REPLICA = """
import json, os, sys
from headpond_workloads.generation.engine.vllm.process import VllmProcess

kept = VllmProcess(sys.argv[2:], os.environ, json.loads(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


def call(*prompt: int) -> Call:
    item = GenerationItem(
        prompt=Prompt(token_ids=prompt), max_output_tokens=100, sampling=Sampling(seed=1)
    )
    return Call(
        request_id="r",
        tenant="tenant",
        workload="generation",
        model="tiny",
        items=(item,),
        deadline_s=1e5,
        stream=True,
    )


@asynccontextmanager
async def looped(tiny: Tiny, folder: Path, blocks: int = 64) -> AsyncIterator[Loop]:
    manifest = tiny.bundle.manifest
    with vllm_engine(tiny.bundle, fake_python(folder), blocks=blocks) as engine:
        loop = loop_for(
            record,
            engine,
            record.bind(engine.symbols, manifest.execution.dtype),
            state_bytes=blocks * BLOCK_BYTES,
            bundle=manifest.ref,
            observer=lambda report: None,
        )
        loop.start()
        try:
            yield loop
        finally:
            await loop.stop(0.0)


@pytest.mark.parametrize("trouble", [DIES, RAISES, HANGS])
async def test_a_lost_process_ends_the_stream_and_then_the_engine(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: int
) -> None:
    monkeypatch.setattr(VllmProcess, "patience_s", 0.5)
    async with looped(tiny, tmp_path) as loop:
        answer = await loop.submit(call(1, 2, trouble))
        events = [event async for batch in answer.batches() for event in batch]
        (error,) = [event.error for event in events if type(event) is Failed]
        assert isinstance(error, WorkerLost)
        assert len(events) > 1
        assert loop.snapshot().lost
        with pytest.raises(NotReady, match="does not run"):
            await loop.submit(call(1, 2, 3))
        assert loop.give_up()


async def test_calls_that_do_not_fit_together_are_whole_all_the_same(
    tiny: Tiny, tmp_path: Path
) -> None:
    prompts = [tuple(range(at, at + 40)) for at in range(8)]
    async with looped(tiny, tmp_path, blocks=20) as loop:
        answers = [await loop.submit(call(*prompt)) for prompt in prompts]
        found = [await tokens_of(answer) for answer in answers]
        assert loop.snapshot().preemptions > 0
        assert loop.snapshot().state_held_bytes == 0
    assert found == [written(prompt, 100) for prompt in prompts]


async def tokens_of(answer: LoopAnswer) -> list[int]:
    events = [event async for batch in answer.batches() for event in batch]
    deltas = [event.payload for event in events if type(event) is Output]
    assert all(isinstance(delta, TextDelta) for delta in deltas)
    return [each for delta in deltas if isinstance(delta, TextDelta) for each in delta.token_ids]


async def test_a_process_that_dies_at_rest_is_noticed(tiny: Tiny, tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    async with looped(tiny, tmp_path) as loop:
        (child,) = set(psutil.Process().children()) - before
        assert not loop.snapshot().lost
        child.kill()
        until_s = time.monotonic() + SOON_S
        while not loop.snapshot().lost:
            assert time.monotonic() < until_s
        assert loop.give_up()


def test_no_process_outlives_its_replica(tmp_path: Path) -> None:
    numbers = dict.fromkeys(Start.__annotations__, 1)
    start = json.dumps(numbers | {"folder": "", "dtype": "float32"})
    child = [fake_python(tmp_path), "-I", str(Path(process.__file__).with_name("child.py"))]
    require_no_orphan(REPLICA, start, *child)
