"""The picture of recipes, gain against forgetting, from the tables of a page: `recipes.py verifiable.md OUT.svg`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 320, 54, 280
X, Y = (-16.0, 8.0), (30.0, 100.0)
GAIN, FORGOTTEN, UNTRAINED, GOAL = "BBQ, letters", "forms obeyed", "as it was", "goal"
"""The rows that are drawn, and the columns that are no recipe."""
Point = tuple[str, float, float]


def tables(page: str) -> Iterator[list[list[str]]]:
    """Each table that has both rows, as its lines of cells."""
    for block in re.split(r"\n\n+", page):
        lines = [line.strip("|").split("|") for line in block.splitlines() if line.startswith("|")]
        rows = [[cell.strip(" *") for cell in line] for line in lines]
        if all(any(row[0].startswith(name) for row in rows) for name in (GAIN, FORGOTTEN)):
            yield rows


def points(page: str) -> list[Point]:
    """Each recipe's name, the change of the forms obeyed, and the mean of BBQ's two accuracies; the untrained first."""
    found: list[Point] = []
    for heads, *rows in tables(page):
        gain, forms = (next(row for row in rows if row[0].startswith(name)) for name in (GAIN, FORGOTTEN))
        for place, head in enumerate(heads[1:], 1):
            if head == GOAL or (head == UNTRAINED and found):
                continue
            before, now = (_first(forms[at]) for at in (heads.index(UNTRAINED), place))
            is_change = forms[place][:1] in "+−"
            change = 0.0 if head == UNTRAINED else now if is_change else now - before
            found.append((head.split(", mean")[0], change, _mean(gain[place])))
    return found


def _mean(cell: str) -> float:
    numbers = [_first(each) for each in cell.split("/")]
    return sum(numbers) / len(numbers)


def _first(cell: str) -> float:
    number = re.search(r"[−-]?\d+(?:\.\d+)?", cell)
    assert number is not None, cell
    return float(number.group().replace("−", "-"))


def at(x: float, y: float) -> tuple[float, float]:
    wide, high = WIDTH - LEFT - 20, BOTTOM - 20
    return LEFT + (x - X[0]) / (X[1] - X[0]) * wide, BOTTOM - (y - Y[0]) / (Y[1] - Y[0]) * high


def text(x: float, y: float, words: str, anchor: str = "middle", colour: str = "#000") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def drawn(found: Sequence[Point], default: str) -> str:
    """The picture; the recipe whose name begins with `default` is green."""
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
    # Recipes stand close together, so each has a number; the names are listed where no recipe is.
    for number, (name, x, y) in enumerate(found):
        left, top = at(x, y)
        colour = "#0b6b62" if name.startswith(default) else "#555"
        covered = any(abs(left - x) + abs(top - y) < 9 for x, y in (at(*point[1:]) for point in found[:number]))
        if not covered:
            lines.append(f'<circle cx="{left:.0f}" cy="{top:.0f}" r="9" fill="{colour}" fill-opacity="0.8"/>')
        lines.append(text(left + 17 * covered, top + 4, str(number), colour=colour if covered else "#fff"))
        lines.append(text(LEFT + 20, 118 + 15 * number, f"{number}  {name}", "start", colour))
    lines.append(text(WIDTH / 2, HEIGHT - 6, "forms obeyed, change in points (right: nothing forgotten)"))
    lines.append(text(LEFT, 13, "BBQ, percent right (mean of ambiguous and disambiguated)", "start"))
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    page = Path(sys.argv[1]).read_text(encoding="utf-8")
    bold = re.search(r"\| \*\*(R\d+)", page)
    Path(sys.argv[2]).write_text(drawn(points(page), bold[1] if bold else "-"), encoding="utf-8")
