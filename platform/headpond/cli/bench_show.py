"""The figures of a load for people: tables, and how goodput goes with what is offered."""

from __future__ import annotations

from collections.abc import Sequence

import plotille  # type: ignore[import-untyped]
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from headpond.cli.bench_figures import Figures, Spread

_WIDTH, _HEIGHT = 50, 10


def show(found: Sequence[Figures], unit: str, *, streamed: bool) -> None:
    """Print the figures of several rates."""
    console = Console()
    console.print(_rates(found, streamed=streamed))
    console.print(f"[dim]work is counted in {unit}[/dim]")
    console.print()
    console.print(_phases(found))
    console.print()
    console.print(_plot(found), highlight=False, markup=False)
    for error, times in _errors(found).items():
        console.print(f"[yellow]{times} x {escape(error)}[/yellow]", highlight=False)


def _rates(found: Sequence[Figures], *, streamed: bool) -> Table:
    heads = ["offered/s", "good/s", "good work/s", "refused", "failed"]
    heads += ["first ms p50", "p95"] if streamed else []
    table = Table(box=None)
    for head in (*heads, "total ms p50", "p95"):
        table.add_column(head, justify="right")
    for each in found:
        row = [f"{each.offered_s:.1f}", f"{each.good_s:.1f}", f"{each.good_work_s:,.0f}"]
        row += [str(each.refused), str(each.failed)]
        row += _texts(each.first_ms) if streamed else []
        table.add_row(*row, *_texts(each.total_ms))
    return table


def _phases(found: Sequence[Figures]) -> Table:
    """Return the phases at each rate, p50 and p95."""
    names = list(dict.fromkeys(name for each in found for name in each.phases_ms))
    table = Table(Column("phase ms, p50/p95", no_wrap=True), box=None)
    for each in found:
        table.add_column(f"{each.offered_s:.1f}/s", justify="right")
    for name in names:
        spreads = [each.phases_ms.get(name, Spread(p50=0.0, p95=0.0)) for each in found]
        table.add_row(name, *(f"{spread.p50:.1f}/{spread.p95:.1f}" for spread in spreads))
    return table


def _plot(found: Sequence[Figures]) -> str:
    """Draw goodput over what is offered, beside the line on which all of it would be good."""
    ranked = sorted(found, key=lambda each: each.offered_s)
    offered = [0.0, *(each.offered_s for each in ranked)]
    good = [0.0, *(each.good_s for each in ranked)]
    most = max(*offered, 0.001)
    figure = plotille.Figure()
    figure.width, figure.height, figure.with_colors = _WIDTH, _HEIGHT, False
    figure.x_label, figure.y_label = "offered/s", "good/s"
    figure.x_ticks_fkt = figure.y_ticks_fkt = _tick
    figure.set_x_limits(min_=0.0, max_=most)
    figure.set_y_limits(min_=0.0, max_=most)
    figure.plot([0.0, most], [0.0, most])
    figure.plot(offered, good)
    figure.scatter(offered[1:], good[1:], marker="o")
    return str(figure.show())


def _tick(value: float, _: float) -> str:
    return f"{value:.3g}"


def _errors(found: Sequence[Figures]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in found:
        for error, times in each.errors.items():
            total[error] = total.get(error, 0) + times
    return total


def _texts(spread: Spread) -> list[str]:
    return [f"{spread.p50:.0f}", f"{spread.p95:.0f}"]
