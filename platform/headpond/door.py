"""A replica's routed door: what a router may ask of it, over whatever carries the calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self

from headpond.backend import LocalBackend
from headpond.call import Call
from headpond.errors import HeadpondError
from headpond.feeding import Feeding
from headpond.hop import Answered, ReplicaStatus
from headpond.lane import CameTo, LaneAddress, LaneServer
from headpond.units import Work


class Door:
    """Runs routed calls on a backend; refusals and failures are values, never exceptions."""

    def __init__(self, backend: LocalBackend, lanes: LaneServer, address: LaneAddress) -> None:
        self._backend = backend
        self._lanes = lanes
        self._address = address
        self._holds: set[int] = set()

    @classmethod
    async def open(cls, backend: LocalBackend, host: str) -> Self:
        """Listen for lanes on a free port of `host`."""
        lanes = LaneServer()
        return cls(backend, lanes, await lanes.start(host))

    async def close(self) -> None:
        """Close every lane; streams over them end with `WorkerLost` at their routers."""
        await self._lanes.stop()

    async def answer(self, call: Call, number: int) -> Answered | HeadpondError:
        """Run a call to its end; meanwhile the status names its number, unlike any other's."""
        self._holds.add(number)
        try:
            return await self._answer(call)
        finally:
            self._holds.discard(number)

    async def _answer(self, call: Call) -> Answered | HeadpondError:
        try:
            answer = await self._backend.admit(call)
        except HeadpondError as error:
            return error
        try:
            events = [event async for batch in answer.batches() for event in batch]
        except HeadpondError as error:
            return Answered(accepted=answer.accepted, events=(), error=error)
        finally:
            await answer.close()
        return Answered(accepted=answer.accepted, events=tuple(events))

    async def stream(
        self, call: Call, router_id: bytes, stream: int
    ) -> LaneAddress | HeadpondError | None:
        """Run a stream to its end; its events go out over the router's lane, input comes in.

        Returns the address to open a lane at when the router has none here yet.
        """
        if not self._lanes.is_open(router_id):
            return self._address
        try:
            answer = await self._backend.admit(call)
        except HeadpondError as error:
            return error
        send = partial(self._lanes.send, router_id, stream)
        with self._lanes.feeding(router_id, stream, Feeding(answer, send)):
            send(answer.accepted)
            ended = False
            try:
                await answer.pour(send)
                ended = True
            except HeadpondError as error:
                send(error)
            finally:
                await answer.close()
                if not ended:
                    answer.when_over(partial(_tell, send))
        return None

    @property
    def status(self) -> ReplicaStatus:
        """How this replica is."""
        return ReplicaStatus(
            card=self._backend.card,
            reason=self._backend.reason,
            backlog=self._backend.loop.backlog(),
            lane=self._address,
            holds=frozenset(self._holds),
        )


def _tell(send: Callable[[CameTo], bool], work: Work) -> None:
    """Tell a router what a call came to that did not end with `Ended`."""
    send(CameTo(work))
