"""Importing the client."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headpond
from headpond_workloads.client import AsyncClient, Client


def test_the_package_shows_both_clients() -> None:
    assert headpond.Client is Client
    assert headpond.AsyncClient is AsyncClient
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = headpond.nothing_of_this_name  # type: ignore[attr-defined]


def test_nothing_heavy_is_loaded() -> None:
    heavy = ("torch", "ray", "transformers", "starlette", "numpy", "yaml", "structlog")
    code = (
        "import sys\nfrom headpond import AsyncClient, Client\nClient().close()\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
