"""What commands say when something is wrong."""

from __future__ import annotations

import pytest
import typer

from headpond.cli.console import refusals, result_console
from headpond.errors import InvalidRequest


def test_results_come_in_whole_lines_where_no_terminal_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    result_console().print("word " * 40)
    assert capsys.readouterr().out == "word " * 40 + "\n"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InvalidRequest("too big", param="size"), "too big (size)\n"),
        (InvalidRequest("size: too big", param="size"), "size: too big\n"),
        (ModuleNotFoundError("No module named 'ray'"), "headpond[serve]"),
    ],
)
def test_it_is_a_line_and_exit_code_1(
    error: Exception, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, refusals():
        raise error
    assert ended.value.exit_code == 1
    assert told in capsys.readouterr().err
