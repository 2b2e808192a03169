"""What the chart knows of the platform is what the platform says now."""

from __future__ import annotations

import subprocess
import sys

from charts import ROOT


def test_the_catalogue_and_the_schema_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "helm/generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
