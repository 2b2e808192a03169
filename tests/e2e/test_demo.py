"""`make demo` as a newcomer meets it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from headpond.ray_env import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def test_demo_shows_one_working_call_per_workload_and_stops(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    then = f"{sys.executable} recipes/tinysd_digits/contact_sheet.py {sheet}"
    command = [sys.executable, "-m", "headpond.cli", "demo", "--once", "--then", then]
    done = subprocess.run(
        [*command, "--port", str(free_port())],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "# generation: smollm2-135m" in done.stdout
    assert '"finish_reason"' in done.stdout
    assert "# speech: whisper-tiny-en" in done.stdout
    assert "forward" in done.stdout
    assert "# diffusion: tinysd-digits" in done.stdout
    with Image.open(sheet) as picture:
        assert picture.format == "PNG"
        assert len(picture.convert("RGB").getcolors(2**20) or []) > 100
    served = set(re.findall(r"^# (\w+): ", done.stdout, re.MULTILINE))
    batched = re.findall(r"^# batch, (\w+): 2 of 2 records by \S+@", done.stdout, re.MULTILINE)
    assert sorted(batched) == sorted(served)
    assert len(batched) == 6
    assert done.stdout.count('"custom_id":"second"') == 6
