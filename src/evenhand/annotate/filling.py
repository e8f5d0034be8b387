"""Writes the ratings of the web page into the sheets, from which everything else reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from evenhand.annotate.journal import FILE, Journal
from evenhand.annotate.sheets import CANNOT_TELL, RATERS, SHORTS, read_rows, sheet_text
from evenhand.core import files


def fill_sheets(folder: Path, raters: Iterable[str]) -> int:
    """Fill the raters' sheets and return the number of ratings; cells without one stay as they are."""
    path = folder / FILE
    if not path.exists():
        return 0
    store = Journal(path)
    try:
        given = {(each.rater, each.item, each.scale): each.value for each in store.current()}
    finally:
        store.close()
    for rater in raters:
        sheet = folder / RATERS / f"{rater}.csv"
        rows = read_rows(sheet)
        before = [dict(row) for row in rows]
        for row in rows:
            for scale in SHORTS:
                cell = (rater, row["id"].strip(), scale)
                if cell in given:
                    row[scale] = CANNOT_TELL if given[cell] is None else str(given[cell])
        if rows != before:
            files.write_bytes(sheet, sheet_text(list(rows[0]), [list(row.values()) for row in rows]).encode())
    return len(given)
