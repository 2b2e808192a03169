"""The engine on the real loop, with less memory than the load would like."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from headpond.call import Call, Ended, Output
from headpond.engine import Quantum
from headpond.scheduling.loop import Loop, loop_for
from headpond.telemetry.report import CallReport
from headpond_workloads.generation.items import GenerationItem, Prompt, Sampling, TextDelta
from headpond_workloads.generation.record import record

if TYPE_CHECKING:
    from workloads.generation.conftest import Tiny

PROMPTS = [tuple((at * 11 + which * 17) % 390 for at in range(20 + which)) for which in range(12)]
COUNT = 40


def call(which: int, tenant: str = "t") -> Call:
    item = GenerationItem(
        prompt=Prompt(token_ids=PROMPTS[which]),
        max_output_tokens=COUNT,
        sampling=Sampling(temperature=0.0),
    )
    return Call(
        request_id=str(which),
        tenant=tenant,
        workload="generation",
        model="tiny",
        items=(item,),
        deadline_s=60,
        stream=True,
    )


async def output_ids(loop: Loop, which: int, most: int = COUNT, tenant: str = "t") -> list[int]:
    """Read a call's tokens, and leave after `most` of them."""
    answer = await loop.submit(call(which, tenant))
    found: list[int] = []
    try:
        async for events in answer.batches():
            for event in events:
                if isinstance(event, Output) and isinstance(event.payload, TextDelta):
                    found += event.payload.token_ids
                if isinstance(event, Ended):
                    return found
            if len(found) >= most:
                return found
    finally:
        await answer.close()
    return found


async def test_preemption_and_cancellation_leave_tokens_and_blocks_right(tiny: Tiny) -> None:
    blocks = 14  # three and a half sequences at their longest
    engine = tiny.engine(blocks=blocks)
    reports: list[CallReport] = []
    loop = loop_for(
        record,
        engine,
        record.bind(engine.symbols, "float32"),
        state_bytes=blocks * 16 * 2 * 2 * 2 * 8 * 4,
        max_slots=8,
        bundle="tiny@1.0.0+0",
        observer=reports.append,
    )
    loop.start()
    try:
        staying = [output_ids(loop, which) for which in range(8)]
        leaving = [output_ids(loop, which, most=3) for which in range(8, 12)]
        found = await asyncio.gather(*staying, *leaving)
    finally:
        await loop.stop(5.0)
    assert found[:8] == [tiny.greedy(prompt, COUNT) for prompt in PROMPTS[:8]]
    for which in range(8, 12):
        assert found[which] == tiny.greedy(PROMPTS[which], COUNT)[: len(found[which])]
    assert sum(report.preemptions for report in reports) > 0
    assert engine.free_blocks == blocks


async def test_what_another_tenant_has_asked_makes_nothing_quicker(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, computed = tiny.engine(), [0]
    step = engine.step

    def counted(quanta: Sequence[Quantum[Any]]) -> object:
        computed[-1] += sum(quantum.units for quantum in quanta)
        return step(quanta)

    monkeypatch.setattr(engine, "step", counted)
    loop = loop_for(
        record,
        engine,
        record.bind(engine.symbols, "float32"),
        state_bytes=2**20,
        bundle="tiny@1.0.0+0",
        observer=lambda _: None,
    )
    loop.start()
    try:
        for tenant in ("one", "one", "two", "two"):
            computed.append(0)
            await output_ids(loop, 11, tenant=tenant)
    finally:
        await loop.stop(5.0)
    _, first, again, theirs, theirs_again = computed
    assert again < first
    assert (theirs, theirs_again) == (first, again)
