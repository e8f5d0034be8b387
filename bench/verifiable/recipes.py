"""The picture of recipes, gain against forgetting, from the tables of a page: `recipes.py verifiable.md OUT.svg`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 320, 54, 280
X, Y = (-16.0, 8.0), (30.0, 100.0)
NAMES = {
    "as it was": -14,
    "20 % own answers": -12,
    "30 %, with forms": -12,
    "the same, held to probabilities": 24,
    "50 %, weight 3": 24,
    "default and its forerunner (green)": -30,
    "tried": 22,
    "tried again": -18,
}
"""Recipe → how far below its mark the name stands."""


def row(page: str, begin: str, after: str) -> list[str]:
    """The cells of the first row that begins so, in the table after a word of the page."""
    line = next(each for each in page[page.index(after) :].splitlines() if each.startswith(f"| {begin}"))
    return [cell.strip(" *") for cell in line.strip("|").split("|")][1:]


def points(page: str) -> list[tuple[str, float, float]]:
    """Name, change of the forms obeyed, and the mean of BBQ's two accuracies."""
    tried = "Four recipes beside the untrained model"
    both = [_mean(cell) for cell in row(page, "BBQ, letters", tried)]
    forms = [float(cell) for cell in row(page, "forms obeyed", tried)]
    found = [(name, form - forms[0], gain) for name, form, gain in zip(NAMES, forms, both, strict=False)]
    seeds = "| percent right | as it was | seeds 8"
    change = [_change(cell) for cell in row(page, "forms obeyed", seeds)[1:5]]
    gained = [_mean(cell) for cell in row(page, "BBQ, letters", seeds)[1:5]]
    names = ([*NAMES][-3], "", *[*NAMES][-2:])
    return [*found, *zip(names, change, gained, strict=True)]


def _mean(cell: str) -> float:
    numbers = [float(each) for each in re.sub(r"\[[^]]*\]|\*|± [\d.]+", "", cell).split("/")]
    return sum(numbers) / len(numbers)


def _change(cell: str) -> float:
    return float(cell.split(maxsplit=1)[0].strip("*").replace("−", "-"))


def at(x: float, y: float) -> tuple[float, float]:
    wide, high = WIDTH - LEFT - 20, BOTTOM - 20
    return LEFT + (x - X[0]) / (X[1] - X[0]) * wide, BOTTOM - (y - Y[0]) / (Y[1] - Y[0]) * high


def text(x: float, y: float, words: str, anchor: str = "middle", colour: str = "#000") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def drawn(found: Sequence[tuple[str, float, float]]) -> str:
    label = "Recipes: right answers on BBQ against forms obeyed"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}"'
    lines = [
        f'{head} font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in range(40, 101, 20):
        _, y = at(0, tick)
        lines += [f'<path d="M{LEFT} {y:.0f}H{WIDTH - 20}" stroke="#ddd"/>', text(LEFT - 6, y + 4, str(tick), "end")]
    for tick in range(-16, 9, 4):
        x, _ = at(tick, 0)
        colour = "#888" if tick == 0 else "#ddd"
        lines += [f'<path d="M{x:.0f} 20V{BOTTOM}" stroke="{colour}"/>', text(x, BOTTOM + 16, f"{tick:+d}")]
    for place, (name, x, y) in enumerate(found):
        left, top = at(x, y)
        colour = "#0b6b62" if place in (len(NAMES) - 3, len(NAMES) - 2) else "#555"
        lines.append(f'<circle cx="{left:.0f}" cy="{top:.0f}" r="5" fill="{colour}"/>')
        if name:
            lines.append(text(left, top + NAMES[name], name, colour=colour))
    lines.append(text(WIDTH / 2, HEIGHT - 6, "forms obeyed, change in points (right: nothing forgotten)"))
    lines.append(text(LEFT, 13, "BBQ, percent right (mean of ambiguous and disambiguated)", "start"))
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(drawn(points(Path(sys.argv[1]).read_text(encoding="utf-8"))), encoding="utf-8")
