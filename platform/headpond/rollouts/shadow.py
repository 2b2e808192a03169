"""Shadow traffic: copies of calls to another version, whose answers only we see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from headpond.bundle.fixtures import first_difference
from headpond.call import Answer, Call, Event, Output, Priority
from headpond.engine import Json
from headpond.errors import DeadlineExceeded, HeadpondError, Overloaded
from headpond.record import Compared
from headpond.rollouts.trial import Trial

_AT_ONCE = 4
"""Copies that one router has under way; what comes meanwhile is not copied."""

Forward = Callable[[Call, str], Awaitable[Answer]]
"""Sends a call to an application."""


class Shadows:
    """Sends copies when their callers have been served, and compares the answers."""

    def __init__(self, forward: Forward, compared: Mapping[str, Compared]) -> None:
        """Start with none under way.

        Args:
            forward: Sends a copy.
            compared: For each workload what of an item's outputs is compared.
        """
        self._forward = forward
        self._compared = compared
        self._under_way: set[asyncio.Task[None]] = set()

    def copy(self, trial: Trial, call: Call, events: Sequence[Event]) -> None:
        """Begin a copy of a call that is over, or drop it when there are enough."""
        compare = self._compared.get(call.workload)
        if compare is None or len(self._under_way) >= _AT_ONCE:
            trial.agreed.dropped += 1
            return
        task = asyncio.create_task(self._run(trial, call, compare, list(events)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _run(
        self, trial: Trial, call: Call, compare: Compared, expected: Sequence[Event]
    ) -> None:
        plan, agreed = trial.revision.shadow, trial.agreed
        if plan is None:
            return
        # Batch work: it gives way to every caller, and is refused first. Nothing is stored.
        copy = replace(
            call,
            request_id=f"{call.request_id}/shadow",
            priority=Priority.BATCH,
            stream=False,
            store=None,
        )
        try:
            got = await whole(await self._forward(copy, plan.target))
        except (Overloaded, DeadlineExceeded):
            agreed.dropped += 1
            return
        except HeadpondError as error:
            agreed.failed += 1
            agreed.example = error.message
            return
        difference = first_difference(
            comparable(compare, expected), comparable(compare, got), plan.tolerance
        )
        agreed.compared += 1
        if difference is None:
            agreed.agreed += 1
        else:
            agreed.example = f"at {difference.position or 'the value'}"


async def whole(answer: Answer) -> Sequence[Event]:
    """Return every event of an answer, and let go of it.

    Raises:
        HeadpondError: The call failed.
    """
    try:
        return [event async for batch in answer.batches() for event in batch]
    finally:
        await answer.close()


def comparable(compare: Compared, events: Sequence[Event]) -> Json:
    """Return what is compared of every item; one without an output has nothing."""
    outputs: dict[int, list[object]] = {}
    for event in events:
        if isinstance(event, Output):
            outputs.setdefault(event.item, []).append(event.payload)
    return [compare(outputs[item]) for item in sorted(outputs)]
