"""Loads CrowS-Pairs: 1,508 pairs of sentences that differ in the group they are about.

One CSV file. `sent_more` is the sentence that stereotypes more; `stereo_antistereo` says whether it is about the
historically disadvantaged group (`stereo`) or about the other one (`antistereo`).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evenhand.core.errors import DataError
from evenhand.core.files import lines

FILE = "crows_pairs_anonymized.csv"
_COLUMNS = ("sent_more", "sent_less", "stereo_antistereo", "bias_type", "anon_writer")
_AGAIN = "Download the file again: evenhand data pull crows_pairs."


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences; `more` is the one that stereotypes more."""

    number: int
    more: str
    less: str
    direction: Literal["stereo", "antistereo"]
    bias_type: str
    writer: str


def load_pairs(path: Path) -> Sequence[Pair]:
    """Read all pairs in the order of the file."""
    try:
        text = [line.decode("utf-8") for _, line in lines(path)]
    except UnicodeDecodeError as error:
        raise DataError(f"is not UTF-8 text. {_AGAIN}", file=path) from error
    rows = csv.DictReader(text)
    if missing := [name for name in _COLUMNS if name not in (rows.fieldnames or ())]:
        raise DataError(f"has no column {missing[0]}. {_AGAIN}", file=path)
    pairs = [_pair(row, number, path, rows.line_num) for number, row in enumerate(rows)]
    if not pairs:
        raise DataError(f"there are no pairs in the file. {_AGAIN}", file=path)
    return pairs


def _pair(row: Mapping[str, str | None], number: int, path: Path, line: int) -> Pair:
    more, less, direction, bias_type, writer = ((row[name] or "").strip() for name in _COLUMNS)
    if not more or not less or more == less:
        raise DataError("the two sentences of a pair must be there and differ.", file=path, line=line)
    if direction not in ("stereo", "antistereo"):
        raise DataError(f"stereo_antistereo is {direction!r}, not stereo or antistereo.", file=path, line=line)
    return Pair(number, more, less, direction, bias_type or "other", writer or str(number))
