"""A paper's numbers as CSV files, one line per number, ours beside the published one."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import astuple, fields
from pathlib import Path

from evenhand.papers.base import Figure, PaperPage, Table
from evenhand.papers.claims import Claim
from evenhand.studies.results import Estimate

_NUMBERS = ("value", "low", "high", "n")
_NONE = Estimate("", "", None, None, None, 0)


def write_csv_files(page: PaperPage, folder: Path) -> list[Path]:
    """Writes one file per table and figure of the page, and one of the claims."""
    written: list[Path] = []
    if page.claims:
        head = tuple(each.name for each in fields(Claim))
        written.append(_write(folder / "claims.csv", head, (astuple(claim) for claim in page.claims)))
    written += [_write(folder / f"{table.id}.csv", _table_head(), _table_lines(table)) for table in page.tables]
    return written + [_write(folder / f"{each.id}.csv", _figure_head(), _figure_lines(each)) for each in page.figures]


def _write(path: Path, head: tuple[str, ...], lines: Iterator[tuple[object, ...]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(lines)
    return path


def _table_head() -> tuple[str, ...]:
    about = ("data_set", "method", "setting", "metric")
    return (*about, *_NUMBERS, "published", "published_as", "note", "reproducible", "sd")


def _table_lines(table: Table) -> Iterator[tuple[object, ...]]:
    for grid in table.grids:
        for row in grid.rows:
            for column, cell in zip(grid.columns, row.cells, strict=True):
                about = (grid.name, row.method, row.setting, column.name)
                paper = (cell.published, row.published_as, row.note, row.reproducible, cell.spread)
                yield (*about, *_numbers(cell.estimate), *paper)


def _figure_head() -> tuple[str, ...]:
    return ("data_set", "setting", "part", *_NUMBERS, "note")


def _figure_lines(figure: Figure) -> Iterator[tuple[object, ...]]:
    for bar in figure.bars:
        for part, estimate in zip(figure.parts, bar.parts, strict=True):
            yield (bar.name, bar.setting, part, *_numbers(estimate), bar.note)


def _numbers(estimate: Estimate | None) -> tuple[float | None, float | None, float | None, int]:
    each = estimate or _NONE
    return (each.value, each.low, each.high, each.n)
