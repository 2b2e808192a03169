"""The prober: asks a canary the same again and again, so that drift shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping

from headpond.call import Call, Priority
from headpond.dialect import Incoming
from headpond.engine import Json
from headpond.errors import HeadpondError
from headpond.http.exchange import read_exchange
from headpond.record import WorkloadRecord
from headpond.rollouts.shadow import Forward, comparable, whole

_TENANT = "headpond-probe"


class Prober:
    """Asks the example of a workload's first route, by the way of every routed call."""

    def __init__(
        self,
        forward: Forward,
        records: Mapping[str, WorkloadRecord],
        workload_of: Callable[[str], str | None],
    ) -> None:
        """Ask nothing yet.

        Args:
            forward: Sends a call to an application.
            records: The workloads by name.
            workload_of: Returns the workload of an alias, where it is known.
        """
        self._forward = forward
        self._records = records
        self._workload_of = workload_of

    async def ask(self, alias: str, app: str) -> Json:
        """Return what the answer of an application is compared by; None without one.

        It is batch work, so an application that has enough to do may refuse it.
        """
        record = self._records.get(self._workload_of(alias) or "")
        if record is None or record.compared is None:
            return None
        route = record.routes[0]
        body = json.dumps({**route.example, "model": alias}).encode()
        try:
            _, asked = read_exchange(
                route, Incoming(body=body, content_type="application/json", path={}, headers={})
            )
            call = Call(
                request_id=f"probe-{os.urandom(8).hex()}",
                tenant=_TENANT,
                workload=record.name,
                model=alias,
                items=asked.items,
                priority=Priority.BATCH,
                deadline_s=record.overload.deadline_s,
            )
            return comparable(record.compared, await whole(await self._forward(call, app)))
        except HeadpondError:
            return None
