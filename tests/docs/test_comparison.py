"""The comparison quotes no figure that the benchmarks have not."""

from __future__ import annotations

import re

from pages import ROOT


def test_every_figure_is_one_of_the_benchmarks() -> None:
    page = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
    measured = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    quoted = re.findall(r"\| `([^`]*\d[^`]*)` \|", page)
    assert len(quoted) > 15
    assert [figure for figure in quoted if figure not in measured] == []
