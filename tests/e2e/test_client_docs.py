"""The programs of `docs/client.md` do what the page says, on a running platform."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from speakers import as_wav, speech
from testbed import KEY, ROOT, Platform

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

URL = "http://127.0.0.1:8000"
NOT_SERVED = "tinysd-digits"


def test_the_programs_of_the_clients_page(platform: Platform, tmp_path: Path) -> None:
    page = (ROOT / "docs/client.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) > 8
    program = "\n".join(block for block in blocks if NOT_SERVED not in block)
    (tmp_path / "page.py").write_text(program.replace(URL, platform.base_url), encoding="utf-8")
    (tmp_path / "spoken.wav").write_bytes(as_wav(speech(rest_ms=0)))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "error", "HEADPOND_API_KEY": KEY},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for said in ("Paris", "(2, 384)", "Go forward 10 meters.", "go forward ten meters", "1 200"):
        assert said in done.stdout
    assert "dimensions" in done.stdout
