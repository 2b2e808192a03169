"""Importing the client."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headpond
from headpond_workloads.client import AsyncClient, Client

HEAVY = ("torch", "ray", "transformers", "starlette", "numpy", "yaml", "structlog", "websockets")


def test_the_package_shows_both_clients() -> None:
    assert headpond.Client is Client
    assert headpond.AsyncClient is AsyncClient
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = headpond.nothing_of_this_name  # type: ignore[attr-defined]


def test_nothing_heavy_is_loaded() -> None:
    assert loaded("from headpond import AsyncClient, Client\nClient().close()") == set()


def test_the_types_of_a_workload_are_loaded_when_it_is_used() -> None:
    client = "from headpond import Client\nclient = Client()"
    workloads = ("generation", "embedding", "reranking", "speech", "vision", "diffusion")
    names = tuple(f"headpond_workloads.{name}" for name in workloads)
    assert loaded(client, names) == set()
    assert loaded(f"{client}\nclient.embeddings", names) == {"headpond_workloads.embedding"}


def test_commands_load_nothing_heavy() -> None:
    listed = "from typer.testing import CliRunner\nCliRunner().invoke(app, ['--help'])"
    heavy = ("torch", "ray", "transformers", "starlette", "numpy", "PIL")
    assert loaded(f"from headpond.cli import app\n{listed}", heavy) == set()


def loaded(code: str, names: tuple[str, ...] = HEAVY) -> set[str]:
    """Return which modules a program has loaded at its end."""
    shown = f"import sys\n{code}\nprint(*[name for name in {names} if name in sys.modules])"
    command = [sys.executable, "-W", "error", "-c", shown]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())
