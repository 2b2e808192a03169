"""Batches now and then, amid everything else, and what became of their records."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from headpond import AsyncClient
from headpond.errors import HeadpondError
from headpond.jobs_wire import Batch
from soak_kinds import Kind
from soak_traffic import Traffic

CANCELLED = 0.25
RECORDS = 16


@dataclass(kw_only=True)
class Batches:
    """One batch after the other.

    Attributes:
        traffic: What goes on beside them, and for how long.
        kinds: What may be asked for in whole answers.
        pause_s: How long after each the next one begins.
        made: Batches.
        cancelled: Those that were cancelled.
        records: Records of the others.
        done: Of these, those with a result.
        failed: Those with an error.
        wrong: What is not as it should be.
    """

    traffic: Traffic
    kinds: Sequence[Kind]
    pause_s: float
    made: int = 0
    cancelled: int = 0
    records: int = 0
    done: int = 0
    failed: int = 0
    wrong: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Make batches until the traffic stops, and leave no file behind."""
        chance = random.Random(8)  # noqa: S311 - no secret
        async with AsyncClient(base_url=self.traffic.base_url, max_retries=8) as client:
            while await self.traffic.wait(self.pause_s):
                try:
                    await self._one(client, self.kinds[self.made % len(self.kinds)], chance)
                except HeadpondError as error:
                    self.wrong.append(f"a batch: {error.code or error.kind}: {error}")

    async def _one(self, client: AsyncClient, kind: Kind, chance: random.Random) -> None:
        self.made += 1
        names = [f"record-{number}" for number in range(RECORDS)]
        lines = [
            {
                "custom_id": name,
                "method": "POST",
                "url": kind.path,
                "body": {**kind.body(chance), "model": kind.model},
            }
            for name in names
        ]
        content = "\n".join(map(json.dumps, lines)).encode()
        file = await client.files.create(content, filename="soak.jsonl")
        batch = await client.batches.create(input_file_id=file.id, endpoint=kind.path)
        if chance.random() < CANCELLED:
            try:
                await client.batches.cancel(batch.id)
            except HeadpondError as error:
                if error.code != "batch_over":
                    raise
        batch = await client.batches.wait(batch.id, timeout_s=300)
        if batch.status == "cancelled":
            self.cancelled += 1
        else:
            await self._count(client, batch, names)
        for made in (file.id, batch.output_file_id, batch.error_file_id):
            if made is not None:
                await client.files.delete(made)

    async def _count(self, client: AsyncClient, batch: Batch, names: Sequence[str]) -> None:
        found = [each async for each in client.batches.results(batch)]
        well = sum(each.error is None for each in found)
        self.records += len(names)
        self.done += well
        self.failed += len(found) - well
        if sorted(each.custom_id for each in found) != sorted(names):
            self.wrong.append(f"{batch.id} ({batch.status}): records are not there once each")
