"""Ranks that are killed: the others end with them, and callers are told at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
import pytest
from transformers import LlamaConfig, PretrainedConfig

from headpond.call import Call, Failed
from headpond.errors import NotReady, WorkerLost
from headpond.scheduling.loop import loop_for
from headpond.telemetry.report import CallReport
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling
from headpond_workloads.generation.record import record
from workloads.generation.conftest import config_of
from workloads.generation.orphans import SOON_S, require_no_orphan
from workloads.generation.parallel_engines import SETTINGS, parallel_engine

if TYPE_CHECKING:
    from workloads.generation.conftest import Tiny

pytestmark = pytest.mark.timeout(300)

RANK_0 = """
import sys
from pathlib import Path
from workloads.generation.conftest import bundle_of
from workloads.generation.parallel_engines import parallel_engine

with parallel_engine(bundle_of(Path(sys.argv[1]), "LlamaForCausalLM")):
    print("ready", flush=True)
    sys.stdin.read()
"""


def call() -> Call:
    item = GenerationItem(
        prompt=Prompt(token_ids=(1, 2, 3)), max_output_tokens=1800, sampling=Sampling(seed=1)
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


async def test_a_killed_rank_ends_the_stream_and_then_the_engine(
    make_tiny: Callable[[PretrainedConfig], Tiny],
) -> None:
    tiny = make_tiny(config_of(LlamaConfig, max_position_embeddings=2048))
    before = set(psutil.Process().children())
    reports: list[CallReport] = []
    with parallel_engine(tiny.bundle) as engine:
        (rank,) = set(psutil.Process().children()) - before
        manifest = tiny.bundle.manifest
        loop = loop_for(
            record,
            engine,
            record.bind(engine.symbols, manifest.execution.dtype),
            state_bytes=SETTINGS.state_bytes,
            bundle=manifest.ref,
            observer=reports.append,
        )
        loop.start()
        try:
            answer = await loop.submit(call())
            batches = answer.batches()
            assert await anext(batches)
            rank.kill()
            killed_at_s = time.monotonic()
            (error,) = [
                event.error async for batch in batches for event in batch if type(event) is Failed
            ]
            assert time.monotonic() - killed_at_s < SOON_S
            assert isinstance(error, WorkerLost)
            with pytest.raises(NotReady, match="does not run"):
                await loop.submit(call())
            assert loop.snapshot().lost
            assert loop.give_up()
        finally:
            await loop.stop(0.0)
    assert [report.outcome for report in reports] == ["worker_lost", "model_not_ready"]


def test_a_rank_killed_while_nothing_is_computed_is_noticed(tiny: Tiny) -> None:
    before = set(psutil.Process().children())
    with parallel_engine(tiny.bundle) as engine:
        (rank,) = set(psutil.Process().children()) - before
        assert not engine.lost
        rank.kill()
        until_s = time.monotonic() + SOON_S
        while not engine.lost:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        with pytest.raises(WorkerLost):
            engine.observe({"token_ids": [1, 2, 3], "max_tokens": 2})


def test_no_rank_outlives_rank_0(tiny: Tiny) -> None:
    require_no_orphan(RANK_0, str(tiny.bundle.root))
