"""What the router, the client and the planner import stays light."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {"torch", "ray", "transformers", "numpy", "starlette", "uvicorn"}

MODULES = (
    "headpond.record",
    "headpond.bundle.contract",
    "headpond.bundle.manifest",
    "headpond.admission.queue",
    "headpond.admission.limits",
    "headpond.scheduling.loop",
    "headpond.telemetry.timeline",
    "headpond.testing.echo",
    "headpond.testing.simulation",
)


def test_records_bundles_admission_and_scheduling_import_nothing_heavy() -> None:
    lines = [f"import {module}" for module in MODULES]
    code = "; ".join([*lines, "import sys, json", "print(json.dumps(sorted(sys.modules)))"])
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(json.loads(shown.stdout))
    assert set(MODULES) <= loaded
    assert not HEAVY & loaded
