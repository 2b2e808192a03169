"""What the logs of a platform say of each request, and of its own faults."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a log says of a request or a call.

    Attributes:
        identifier: The request's.
        workload: Whose.
        outcome: How it ended.
        refused: Whether it was refused before any work.
        pid: The process.
    """

    identifier: str
    workload: str
    outcome: str
    refused: bool
    pid: int


def read_lines(folder: Path) -> tuple[list[Line], list[Line]]:
    """Return the lines of requests that did not go well, and of calls, from Ray's logs."""
    doors: list[Line] = []
    calls: list[Line] = []
    for path in folder.glob("worker-*.err"):
        pid = int(path.stem.rpartition("-")[2])
        for text in path.read_text(errors="replace").splitlines():
            if not text.startswith("{"):
                continue
            found = json.loads(text)
            if (kind := found.get("event")) not in ("call", "request"):
                continue
            line = Line(
                identifier=found["request_id"],
                workload=found["workload"],
                outcome=found["outcome"],
                refused=found["refused"] if kind == "request" else not found["phases_ms"],
                pid=pid,
            )
            (doors if kind == "request" else calls).append(line)
    return doors, calls


def by_request(lines: Iterable[Line]) -> Mapping[str, list[Line]]:
    """Return lines by the identifier of their request."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        found[line.identifier].append(line)
    return found


def faults(logs: Path) -> Iterator[str]:
    """Yield what processes logged of themselves that is a fault of ours."""
    counts: Counter[str] = Counter()
    for path in logs.glob("worker-*.err"):
        for text in path.read_text(errors="replace").splitlines():
            if text.startswith("{") and '"level": "error"' in text:
                counts[str(json.loads(text).get("event"))] += 1
            elif "never retrieved" in text or text.startswith("Traceback"):
                counts[text] += 1
    yield from (f"logged {count} times: {text}" for text, count in counts.items())
