"""Diagrams as SVG, from what the records declare: no script draws them, so they work offline.

Boxes have grounds of their own, so that they are read on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from xml.sax.saxutils import escape

_CHARACTER_PX, _PADDING_PX = 7.8, 14
_HEIGHT_PX, _GAP_PX, _ROW_PX = 34, 26, 46
_MARGIN_PX = 4
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" \
width="{width:.0f}" height="{height:.0f}" font-family="system-ui, sans-serif" font-size="14">
<title>{title}</title>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0 0 8 4 0 8z" fill="#7a8a99"/></marker></defs>"""


class Shape(Enum):
    """What a box stands for; the value is its ground."""

    HOST = "#f1f4f7"
    QUEUE = "#fdf0d8"
    DEVICE = "#dcecf9"
    DELIVERY = "#def2e4"


def chain(title: str, boxes: Sequence[tuple[str, Shape]]) -> str:
    """Return boxes in a row, each with an arrow to the next one."""
    parts, left = [], float(_MARGIN_PX)
    for number, (text, shape) in enumerate(boxes):
        if number:
            parts.append(_arrow(left - _GAP_PX, _middle(0), left, _middle(0)))
        parts += _box(text, shape, left, 0)
        left += _width(text) + _GAP_PX
    return _drawn(title, left - _GAP_PX + _MARGIN_PX, 1, parts)


def fan(title: str, start: str, branches: Mapping[str, str]) -> str:
    """Return a box that leads to others, and each of them by its arrow's words to an end.

    Args:
        title: What a screen reader says.
        start: The text of the first box.
        branches: For each box of the second column the end it leads to.
    """
    branches = dict(sorted(branches.items(), key=lambda branch: branch[1]))
    ends = sorted(set(branches.values()))
    first = _MARGIN_PX + _width(start) + 2 * _GAP_PX
    second = first + max(map(_width, branches)) + 2 * _GAP_PX
    middle = (len(branches) - 1) / 2
    rows = {end: (at + 0.5) * len(branches) / len(ends) - 0.5 for at, end in enumerate(ends)}
    parts = list(_box(start, Shape.HOST, _MARGIN_PX, middle))
    for row, (text, end) in enumerate(branches.items()):
        parts.append(_arrow(_MARGIN_PX + _width(start), _middle(middle), first, _middle(row)))
        parts.append(_arrow(first + _width(text), _middle(row), second, _middle(rows[end])))
        parts += _box(text, Shape.HOST, first, row)
    for end, row in rows.items():
        parts += _box(end, Shape.DEVICE, second, row)
    return _drawn(title, second + max(map(_width, ends)) + _MARGIN_PX, len(branches), parts)


def _drawn(title: str, width: float, rows: int, parts: Sequence[str]) -> str:
    height = 2 * _MARGIN_PX + _HEIGHT_PX + (rows - 1) * _ROW_PX
    head = _HEAD.format(width=width, height=height, title=escape(title))
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _box(text: str, shape: Shape, left: float, row: float) -> Iterator[str]:
    width, top = _width(text), _MARGIN_PX + row * _ROW_PX
    corner = _HEIGHT_PX / 2 if shape is Shape.DEVICE else 4
    yield (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_HEIGHT_PX}" '
        f'rx="{corner:g}" fill="{shape.value}" stroke="#4a6a85"/>'
    )
    yield (
        f'<text x="{left + width / 2:.1f}" y="{top + _HEIGHT_PX / 2 + 5:.1f}" '
        f'text-anchor="middle" fill="#10202c">{escape(text)}</text>'
    )


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" '
        'stroke="#7a8a99" stroke-width="1.5" marker-end="url(#head)"/>'
    )


def _middle(row: float) -> float:
    return _MARGIN_PX + row * _ROW_PX + _HEIGHT_PX / 2


def _width(text: str) -> float:
    return len(text) * _CHARACTER_PX + 2 * _PADDING_PX
