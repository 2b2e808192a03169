"""Requests of declared routes, and what is counted, logged and traced of each at its end.

Of a WebSocket each call of its sessions is one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from time import perf_counter

from headpond.call import Accepted, Answer, Ended, Event, Failed
from headpond.errors import HeadpondError, RequestCancelled
from headpond.http.headers import Headers, request_id, traceparent
from headpond.http.metrics import HttpMetrics
from headpond.telemetry.logs import RequestLog
from headpond.telemetry.outcomes import outcome
from headpond.telemetry.report import RequestReport
from headpond.telemetry.tracing import RequestTracer
from headpond.units import Work

SWITCHED = 101
"""The status of a handshake that went well, and so of every call after it."""


class Requests:
    """What the requests of one route share: where they are counted, logged and traced."""

    def __init__(
        self,
        *,
        method: str,
        route: str,
        workload: str,
        metrics: HttpMetrics,
        tracer: RequestTracer | None,
    ) -> None:
        """Begin with none.

        Args:
            method: Of HTTP.
            route: The declared path.
            workload: The record's name.
            metrics: Where they are counted.
            tracer: Makes their spans; None for no spans.
        """
        self.method = method
        self.route = route
        self.workload = workload
        self.metrics = metrics
        self.tracer = tracer
        self.account = metrics.account(workload)
        self.log = RequestLog()

    def begin(self, headers: Headers, identifier: str | None = None) -> Request:
        """Receive a request, or a call of a session under an identifier of its own."""
        self.account.received += 1
        return Request(self, headers, identifier or request_id(headers))


class Request:
    """One request from its headers to its end.

    Attributes:
        identifier: Goes out with the answer.
        trace: W3C `traceparent` for the calls below it: its own where requests are traced.
        began_s: When it came, on the performance counter.
        tenant: Whose it is, once that is known.
    """

    __slots__ = ("_parent", "_requests", "began_s", "identifier", "tenant", "trace")

    def __init__(self, requests: Requests, headers: Headers, identifier: str) -> None:
        """Note when it came."""
        self.began_s = perf_counter()
        self.identifier = identifier
        self.tenant: str | None = None
        self._requests = requests
        self._parent = traceparent(headers)
        self.trace = self._parent
        if requests.tracer is not None:
            self.trace = requests.tracer.enter(self._parent)

    def end(self, status: int, error: HeadpondError | None, *, admitted: bool) -> None:
        """Count, log and trace how it ended.

        Args:
            status: What was sent; 499 when nothing could be.
            error: How it ended; None for well.
            admitted: Whether its call was admitted.
        """
        requests = self._requests
        refused = requests.account.end(error, admitted=admitted)
        if error is None and requests.tracer is None:
            return
        report = RequestReport(
            request_id=self.identifier,
            method=requests.method,
            route=requests.route,
            workload=requests.workload,
            tenant=self.tenant,
            status=status,
            outcome=outcome(error),
            refused=refused,
            parent=self._parent,
            trace=self.trace,
            total_s=perf_counter() - self.began_s,
        )
        requests.log.observe(report)
        if requests.tracer is not None:
            requests.tracer.observe(report)


class CountedAnswer:
    """The answer to a call of a session; its end is counted, whichever it is."""

    def __init__(self, answer: Answer, request: Request) -> None:
        """Tell a request how its answer ends, once."""
        self._answer = answer
        self._request = request
        self._failed: HeadpondError | None = None
        self._over = False

    @property
    def accepted(self) -> Accepted:
        """What was admitted."""
        return self._answer.accepted

    async def batches(self) -> AsyncIterator[Sequence[Event]]:
        """Iterate over the events.

        Raises:
            HeadpondError: The call as a whole failed.
        """
        try:
            async for batch in self._answer.batches():
                self._failed = self._failed or first_failure(batch)
                if batch and isinstance(batch[-1], Ended):
                    self._end(self._failed)
                yield batch
        except HeadpondError as error:
            self._end(error)
            raise

    async def feed(self, payload: object, units: int) -> None:
        """Hand over more input."""
        await self._answer.feed(payload, units)

    @property
    def waiting_units(self) -> int:
        """How many units the engine has not passed yet."""
        return self._answer.waiting_units

    async def close(self) -> None:
        """Let go of the call."""
        self._end(RequestCancelled())
        await self._answer.close()

    def when_over(self, told: Callable[[Work], None]) -> None:
        """Have `told` called with what the call came to, when it is over."""
        self._answer.when_over(told)

    def _end(self, error: HeadpondError | None) -> None:
        if not self._over:
            self._over = True
            self._request.end(SWITCHED, error, admitted=True)


def first_failure(events: Sequence[Event]) -> HeadpondError | None:
    """Return the error of the first item that failed among events."""
    return next((event.error for event in events if isinstance(event, Failed)), None)
