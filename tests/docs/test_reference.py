"""The generated reference says what the docstrings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_clients_reference_is_current() -> None:
    command = [sys.executable, "docs/reference.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs/reference/client.md").read_text()
    for part in ("## Client", "| `deadline_s`: `float \\| None`", "### listen", "raises `OSError`"):
        assert part in page
