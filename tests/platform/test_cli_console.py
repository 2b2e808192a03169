"""What commands say when something is wrong."""

from __future__ import annotations

import pytest
import typer

from headpond.cli.console import refusals
from headpond.errors import InvalidRequest


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InvalidRequest("too big", param="size"), "too big (size)"),
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
