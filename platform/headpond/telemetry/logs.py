"""Logs: one line of JSON for each call, each request that did not go well, each fault of ours.

Lines never hold what callers sent or got. By default a fault is named by its type and
place only, since an exception's own message may quote the input; at level `debug` the
stack trace is there too.
"""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import PurePath
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from headpond.settings import Settings
from headpond.telemetry.lossy import LossyStream
from headpond.telemetry.outcomes import OK
from headpond.telemetry.report import CallReport, RequestReport


def configure_logging(settings: Settings, stream: TextIO | None = None) -> None:
    """Send this process's log lines to a stream. Called once, by its main.

    Modules that log by the standard library, below `headpond`, get the same lines.

    Args:
        settings: Says from which level on.
        stream: Standard error by default. Serve's replicas give the real one: in its place
            Serve puts a logger of its own, which keeps a thousand lines back.
    """
    # In every way a text stream, but for its type.
    to = cast("TextIO", LossyStream(stream or sys.stderr))
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if settings.log_level == "debug" else name_fault,
    ]
    renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level),
        logger_factory=structlog.WriteLoggerFactory(file=to),
    )
    handler = logging.StreamHandler(to)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    ours = logging.getLogger("headpond")
    ours.handlers = [handler]
    ours.propagate = False
    ours.setLevel(settings.log_level.upper())


def name_fault(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace an exception by its type, and the file name and line that raised it."""
    fault = _fault(event.pop("exc_info", None))
    if fault is not None:
        event["fault"] = type(fault).__name__
        frames = traceback.extract_tb(fault.__traceback__)
        if frames:
            event["at"] = f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}"
    return event


def _fault(exc_info: object) -> BaseException | None:
    """Return the exception in any of the forms in which loggers pass one."""
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return _fault(exc_info[1])
    return sys.exception() if exc_info else None


class CallLog:
    """Writes the line of each call that is over; an observer of the loop."""

    def __init__(self, bundle: str) -> None:
        """Take the logging configuration as it is now.

        Args:
            bundle: `name@version+digest12`, in every line.
        """
        self._log: FilteringBoundLogger = structlog.get_logger("headpond.calls").bind(bundle=bundle)

    def observe(self, report: CallReport) -> None:
        """Write one line at level `info`."""
        call = report.call
        self._log.info(
            "call",
            request_id=call.request_id,
            **traced(call.trace),
            tenant=call.tenant,
            workload=call.workload,
            model=call.model,
            items=len(call.items),
            stream=call.stream,
            outcome=report.outcome,
            work=dict(report.work),
            phases_ms={phase: _ms(spent_s) for phase, spent_s in report.phases_s.items()},
            first_output_ms=_ms(report.first_output_s),
            total_ms=_ms(report.total_s),
            preemptions=report.preemptions,
        )


class RequestLog:
    """Writes a line for each request to the HTTP layer that did not go well.

    Those that did are lines of their replicas already, under the same identifiers.
    """

    def __init__(self) -> None:
        """Take the logging configuration as it is now."""
        self._log: FilteringBoundLogger = structlog.get_logger("headpond.requests")

    def observe(self, report: RequestReport) -> None:
        """Write one line at level `info`, unless all went well."""
        if report.outcome == OK:
            return
        self._log.info(
            "request",
            request_id=report.request_id,
            **traced(report.trace),
            tenant=report.tenant,
            workload=report.workload,
            route=report.route,
            status=report.status,
            outcome=report.outcome,
            refused=report.refused,
            total_ms=_ms(report.total_s),
        )


def traced(trace: str | None) -> dict[str, str]:
    """Return the identifier of a trace as the field of a line; nothing where there is none."""
    return {} if trace is None else {"trace_id": trace.split("-")[1]}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
