"""The source roots do not get in anybody's way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", [ROOT, ROOT / "tests"])
def test_platform_is_the_standard_librarys(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import platform; print(platform.__file__, platform.machine())"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    path = Path(done.stdout.split()[0])
    assert path.name == "platform.py"
    assert ROOT not in path.parents


def test_source_roots_are_no_packages() -> None:
    assert not (ROOT / "platform/__init__.py").exists()
    assert not (ROOT / "workloads/__init__.py").exists()
