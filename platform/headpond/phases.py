"""The ordered parts of a request's latency."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PhaseKind(StrEnum):
    """Who works, or waits, during a phase."""

    HOST = "host"
    QUEUE = "queue"
    DEVICE = "device"
    DELIVERY = "delivery"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One ordered part of a request's latency."""

    name: str
    kind: PhaseKind
    summary: str = ""
