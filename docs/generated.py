"""Keeping a page that a script writes."""

from __future__ import annotations

import sys
from pathlib import Path


def keep(page: Path, text: str) -> None:
    """Write a page, or with `--check` end with 1 where it says something else."""
    if "--check" not in sys.argv:
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        sys.exit(f"{page.name} is out of date: run `python {sys.argv[0]}`")
