"""Commands that installed packages bring."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headpond.cli import app

COMMAND = """
import typer

def shout(text: str, loud: bool = False) -> None:
    \"\"\"Say a text in capitals.\"\"\"
    typer.echo(text.upper() + "!" * loud)
"""


@pytest.fixture
def bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a package that brings a command, for this test only."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shouting_command.py").write_text(COMMAND)

    def install(name: str, target: str) -> None:
        info = tmp_path / f"{name}_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[headpond.commands]\n{name} = {target}\n")

    return install


def test_they_are_listed_and_run(bring: Callable[[str, str], None]) -> None:
    bring("shout", "shouting_command:shout")
    assert "Say a text in capitals." in CliRunner().invoke(app, ["--help"]).stdout
    done = CliRunner().invoke(app, ["shout", "hello", "--loud"])
    assert (done.exit_code, done.stdout) == (0, "HELLO!\n")
    assert CliRunner().invoke(app, ["shout"]).exit_code == 2


def test_one_that_is_broken_leaves_the_others(bring: Callable[[str, str], None]) -> None:
    bring("broken", "no_such_module:command")
    listed = CliRunner().invoke(app, ["--help"])
    assert (listed.exit_code, "bundle" in listed.stdout) == (0, True)
    assert "broken can't be loaded" in listed.stderr
    assert CliRunner().invoke(app, ["broken"]).exit_code == 2


def test_none_takes_the_place_of_our_own(bring: Callable[[str, str], None]) -> None:
    bring("env", "shouting_command:shout")
    assert "export " in CliRunner().invoke(app, ["env"]).stdout
