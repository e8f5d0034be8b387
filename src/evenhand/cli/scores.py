"""What `evenhand score` writes: rows as CSV or JSON Lines, and tables of first rows, means and agreement."""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import IO, Any

import orjson
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenhand.cli.texts import Row
from evenhand.scorers.base import Scorer, Scores
from evenhand.stats import pearson, spearman
from evenhand.types import Unscored

Result = Scores | Unscored
Write = Callable[[Row, Sequence[Result]], None]

_SHOWN_ATTRIBUTES = 7
_SHOWN_REASONS = 3
_DECIMALS = 6


def csv_writer(file: IO[str], fields: Sequence[str], scorers: Sequence[Scorer]) -> Write:
    """Rows as CSV: the file's own fields, then per scorer `SPEC.attribute` and `SPEC.unscored`, the reason."""
    names = [f"{scorer.spec}.{name}" for scorer in scorers for name in (*scorer.attributes, "unscored")]
    columns = list(dict.fromkeys([*fields, *names]))
    writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    return lambda row, results: writer.writerow({**row.fields, **_cells(scorers, results)})


def jsonl_writer(file: IO[str], scorers: Sequence[Scorer]) -> Write:
    """The same names as JSON Lines; null where there is no score or no reason."""

    def write(row: Row, results: Sequence[Result]) -> None:
        file.write(orjson.dumps({**row.fields, **_cells(scorers, results)}).decode() + "\n")

    return write


def _cells(scorers: Sequence[Scorer], results: Sequence[Result]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for scorer, result in zip(scorers, results, strict=True):
        scores: Scores = {} if isinstance(result, Unscored) else result
        for name in dict.fromkeys([*scorer.attributes, *scores]):
            cells[f"{scorer.spec}.{name}"] = round(scores[name], _DECIMALS) if name in scores else None
        cells[f"{scorer.spec}.unscored"] = result.reason if isinstance(result, Unscored) else None
    return cells


class Tally:
    """What is kept of all rows: the scores, and why some have none."""

    def __init__(self, scorers: Sequence[Scorer], preview: int = 0) -> None:
        self.scorers = scorers
        self.rows = 0
        self._preview = preview
        self._first: list[tuple[str, Sequence[Result]]] = []
        self._scores = [{name: array("d") for name in scorer.attributes} for scorer in scorers]
        self._reasons = [Counter[str]() for _ in scorers]

    def add(self, row: Row, results: Sequence[Result]) -> None:
        self.rows += 1
        if len(self._first) < self._preview:
            self._first.append((row.text, results))
        for place, result in enumerate(results):
            if isinstance(result, Unscored):
                self._reasons[place][result.reason] += 1
            for name, column in self._scores[place].items():
                column.append(math.nan if isinstance(result, Unscored) else result.get(name, math.nan))

    def show(self, console: Console) -> None:
        if self._first:
            console.print(self._first_rows())
        for place in range(len(self.scorers)):
            self._show_means(console, place)
        for first, second in combinations(range(len(self.scorers)), 2):
            self._show_agreement(console, first, second)

    def _first_rows(self) -> Table:
        most = _SHOWN_ATTRIBUTES if len(self.scorers) == 1 else 1
        table = Table(box=box.SIMPLE_HEAD, title=f"The first {len(self._first)} of {self.rows:,} texts")
        table.add_column("text", max_width=40, no_wrap=True, overflow="ellipsis")
        for scorer in self.scorers:
            for name in scorer.attributes[:most]:
                table.add_column(name if most > 1 else f"{scorer.spec} {name}", justify="right")
        for text, results in self._first:
            cells = [
                "–" if isinstance(result, Unscored) or name not in result else f"{result[name]:.3f}"
                for scorer, result in zip(self.scorers, results, strict=True)
                for name in scorer.attributes[:most]
            ]
            table.add_row(_one_line(text), *cells)
        return table

    def _show_means(self, console: Console, place: int) -> None:
        scorer, reasons = self.scorers[place], self._reasons[place]
        console.print(
            f"\n{scorer.id}: {self.rows:,} texts, {reasons.total():,} unscored", markup=False, highlight=False
        )
        for reason, count in reasons.most_common(_SHOWN_REASONS):
            console.print(_one_line(f"  {count:,} × {reason}"))
        table = Table("attribute", box=box.SIMPLE_HEAD)
        for name in ("n", "mean", "at 0.5 or more"):
            table.add_column(name, justify="right")
        for name, column in self._scores[place].items():
            values = [value for value in column if not math.isnan(value)]
            if values:
                high = sum(value >= 0.5 for value in values) / len(values)
                table.add_row(name, f"{len(values):,}", f"{math.fsum(values) / len(values):.3f}", f"{100 * high:.1f} %")
        if table.row_count:
            console.print(table)

    def _show_agreement(self, console: Console, first: int, second: int) -> None:
        specs = f"{self.scorers[first].spec} and {self.scorers[second].spec}"
        shared = [name for name in self._scores[first] if name in self._scores[second]]
        if not shared:
            console.print(f"\n{specs} have no attribute in common.", markup=False, highlight=False)
            return
        table = Table("attribute", box=box.SIMPLE_HEAD, title=Text(f"How far {specs} agree"))
        for name in ("n", "Pearson", "Spearman", "same side of 0.5"):
            table.add_column(name, justify="right")
        for name in shared:
            table.add_row(name, *agreement(self._scores[first][name], self._scores[second][name]))
        console.print(table)


def agreement(first: Sequence[float], second: Sequence[float]) -> tuple[str, str, str, str]:
    """n, Pearson, Spearman and the share on the same side of 0.5, of the texts that both have scored."""
    pairs = [(x, y) for x, y in zip(first, second, strict=True) if not (math.isnan(x) or math.isnan(y))]
    if not pairs:
        return "0", "–", "–", "–"
    x, y = zip(*pairs, strict=True)
    same = sum((a >= 0.5) == (b >= 0.5) for a, b in pairs) / len(pairs)
    return f"{len(pairs):,}", _number(pearson(x, y)), _number(spearman(x, y)), f"{100 * same:.1f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _one_line(text: str) -> Text:
    """Text from a file, harmless to a terminal."""
    return Text(re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", text[:500]))
