"""Chart of many points in the unit square as one disc per cell, so that its size does not grow with the points."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evenhand.core.format import number, plural
from evenhand.show.markup import Html, Node, tag

HEIGHT = 380
TOP, BOTTOM = 12, 350
LEFT, RIGHT = 10.0, 95.0
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_LARGEST, _SMALLEST = 11.0, 1.8
"""Radii in pixels."""


def cell_chart(cells: Sequence[tuple[int, int, int]], grid: int, label: str) -> Html:
    """Draw the chart of (cell along x, cell along y, points in it); both axes run from 0 to 1."""
    most = max((n for _, _, n in cells), default=1)
    # Large discs first, so that they do not hide smaller ones.
    discs = [_disc(cell, grid, most) for cell in sorted(cells, key=lambda cell: -cell[2])]
    return tag(
        "svg",
        _axes(),
        tag("line", x1=_across(0), y1=_up(0), x2=_across(1), y2=_up(1), class_="diagonal"),
        discs,
        class_="cells arm-0",
        width="100%",
        height=HEIGHT,
        role="img",
        aria_label=label,
    )


def _disc(cell: tuple[int, int, int], grid: int, most: int) -> Html:
    column, row, n = cell
    x, y = (column + 0.5) / grid, (row + 0.5) / grid
    radius = max(_SMALLEST, _LARGEST * math.sqrt(n / most))
    text = f"{plural(n, 'answer')} near ({number(x, 2)}, {number(y, 2)})"
    return tag("circle", tag("title", text), cx=_across(x), cy=_up(y), r=f"{radius:.1f}", class_="disc")


def _axes() -> list[Node]:
    parts: list[Node] = []
    for tick in _TICKS:
        x, y = _across(tick), _up(tick)
        css = "middle-line" if tick == 0.5 else "grid"
        parts.append(tag("line", x1=_across(0), x2=_across(1), y1=y, y2=y, class_=css))
        parts.append(tag("line", x1=x, x2=x, y1=_up(0), y2=_up(1), class_=css))
        parts.append(tag("text", number(tick, 2), x=0, y=y, dy=4, class_="tick"))
        parts.append(tag("text", number(tick, 2), x=x, y=BOTTOM + 20, class_="tick middle"))
    return parts


def _across(value: float) -> str:
    return f"{LEFT + (RIGHT - LEFT) * value:.2f}%"


def _up(value: float) -> str:
    return f"{BOTTOM - (BOTTOM - TOP) * value:.1f}"
