"""The generated pages say what docstrings, records and schemas say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAYS = {
    "reference.py": (
        "client.md",
        ("## Client", "| `deadline_s`: `float \\| None`", "### listen", "raises `OSError`"),
    ),
    "workloads.py": (
        "workloads.md",
        ("then queue, then prefill, then", "`kv_cache`: layers x 2 x tokens"),
    ),
    "api.py": ("api.md", ("### POST /v1/chat/completions", "| `model` | string | required. |")),
}


@pytest.mark.parametrize("script", SAYS)
def test_a_generated_page_is_current(script: str) -> None:
    command = [sys.executable, f"docs/{script}", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name, parts = SAYS[script]
    page = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    for part in parts:
        assert part in page
