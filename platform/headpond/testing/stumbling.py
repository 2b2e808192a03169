"""The echo workload with an engine that stumbles over some texts: it shows what faults do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headpond.engine import EngineSettings, Progress, Quantum
from headpond.testing import echo
from headpond.testing.echo import EchoEngine, EchoSlot, write_echo_bundle

if TYPE_CHECKING:
    from headpond.bundle.store import Bundle

STAND_STILL, LACK_MEMORY, BREAK = "stand still", "lack memory", "break"
"""Texts at which a step never ends, finds no memory, or raises."""

(_route,) = echo.record.routes
record = replace(
    echo.record,
    name="stumbling",
    routes=(replace(_route, path="/v1/stumble"),),
    engine="headpond.testing.stumbling:load",
)


class StumblingEngine(EchoEngine):
    """Echoes, unless it is told to stumble."""

    def step(self, quanta: Sequence[Quantum[EchoSlot]]) -> list[Progress[str]]:
        """Say the next piece of each, or stumble."""
        texts = {quantum.slot.item.text for quantum in quanta}
        while STAND_STILL in texts:
            time.sleep(60)
        if LACK_MEMORY in texts:
            raise MemoryError
        if BREAK in texts:
            raise RuntimeError("broken")
        return super().step(quanta)


def load(bundle: Bundle, settings: EngineSettings) -> StumblingEngine:
    """Load the engine, as echo's is."""
    del settings
    return StumblingEngine(step_s=echo.step_s(bundle))


def write_stumbling_bundle(folder: Path, *, step_ms: float) -> Path:
    """Write a locked bundle into `folder` and return the folder."""
    manifest = write_echo_bundle(folder, step_ms=step_ms) / "bundle.yaml"
    manifest.write_text(manifest.read_text().replace("workload: echo", "workload: stumbling"))
    return folder
