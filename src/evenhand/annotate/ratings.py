"""Ratings that came back: read with care, then means with intervals per arm and the raters' agreement per scale.

Agreement is Fleiss' kappa on three bands of the scale (0–33, 34–66, 67–100): on single points of 0–100 no two people
agree. Intervals are over questions, with the raters of an item averaged first; they say nothing about other raters.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import orjson

from evenhand.annotate.sheets import COLUMNS, FORMAT, KEY, RATERS, SHORTS
from evenhand.errors import DataError
from evenhand.scorers.opinion import HIGHEST
from evenhand.stats import Interval, fleiss_kappa, mean_interval

BANDS = (34, 67)
"""Where the second and the third band begin."""

Sheet = Mapping[str, Mapping[str, int]]
"""Item id → scale → rating."""


@dataclass(frozen=True, slots=True)
class ArmRating:
    """What people made of one arm, on one scale."""

    arm: str
    """Its label."""
    run: str
    method: str
    scale: str
    mean: Interval
    difference: Interval | None
    """Against the baseline on the same questions; None for the baseline itself."""
    kappa: float | None
    """The raters' agreement on this arm's answers."""


@dataclass(frozen=True, slots=True)
class HumanRatings:
    """All that came of a folder of sheets."""

    arms: Sequence[str]
    baseline: str
    raters: int
    items: int
    ratings: Sequence[ArmRating]
    kappa: Mapping[str, float | None]
    """Per scale, over all answers."""

    def note(self) -> dict[str, Any]:
        return {**asdict(self), "bands": [f"0–{BANDS[0] - 1}", f"{BANDS[0]}–{BANDS[1] - 1}", f"{BANDS[1]}–{HIGHEST}"]}


def import_ratings(folder: Path) -> HumanRatings:
    """Read the sheets of a folder and put the arms back to them."""
    key = _read_key(folder / KEY)
    items: Mapping[str, Mapping[str, str]] = key["items"]
    sheets = [_read_sheet(folder / RATERS / f"{rater}.csv", items.keys()) for rater in key["raters"]]
    arms, baseline = key["arms"], key["baseline"]
    origins: Mapping[str, Mapping[str, str]] = key.get("origins") or {arm: _origin(arm) for arm in arms}
    rows = [_arm(arm, origins[arm], scale, baseline, items, sheets) for scale in SHORTS for arm in arms]
    agreed = {scale: _kappa(sheets, list(items), scale) for scale in SHORTS}
    return HumanRatings(arms, baseline, len(sheets), len(items), rows, agreed)


def _origin(label: str) -> dict[str, str]:
    """Run and method, of keys that do not name them: those of older versions."""
    run, _, method = label.rpartition(": ")
    return {"run": run, "method": method}


def _arm(
    arm: str,
    origin: Mapping[str, str],
    scale: str,
    baseline: str,
    items: Mapping[str, Mapping[str, str]],
    sheets: Sequence[Sheet],
) -> ArmRating:
    mine = {about["sample"]: name for name, about in items.items() if about["arm"] == arm}
    others = {about["sample"]: name for name, about in items.items() if about["arm"] == baseline}
    clusters = [items[name]["cluster"] or sample for sample, name in mine.items()]

    def rated(name: str) -> float:
        return fmean(sheet[name][scale] for sheet in sheets)

    values = [rated(name) for name in mine.values()]
    changes = [rated(name) - rated(others[sample]) for sample, name in mine.items()]
    difference = None if arm == baseline else mean_interval(changes, clusters)
    agreed = _kappa(sheets, list(mine.values()), scale)
    mean = mean_interval(values, clusters)
    return ArmRating(arm, origin["run"], origin["method"], scale, mean, difference, agreed)


def _kappa(sheets: Sequence[Sheet], names: Sequence[str], scale: str) -> float | None:
    """Fleiss' kappa of the bands; None with one rater, or where all ratings are in one band."""
    table = [[0] * (len(BANDS) + 1) for _ in names]
    for row, name in zip(table, names, strict=True):
        for sheet in sheets:
            row[sum(sheet[name][scale] >= start for start in BANDS)] += 1
    return fleiss_kappa(table)


def _read_key(path: Path) -> dict[str, Any]:
    try:
        content: Any = orjson.loads(path.read_bytes())
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}; name a folder that `evenhand annotate export` wrote.", file=path
        ) from error
    except orjson.JSONDecodeError as error:
        raise DataError(f"not valid JSON ({error}).", file=path) from error
    if not isinstance(content, dict) or cast(dict[str, Any], content).get("format") != FORMAT:
        raise DataError(f"not a key that `evenhand annotate export` wrote (its format is not {FORMAT}).", file=path)
    return cast(dict[str, Any], content)


def _read_sheet(path: Path, expected: Collection[str]) -> Sheet:
    """A rater's sheet; the first thing that is wrong is told with its row and column."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"the sheet cannot be read: {error.strerror}.", file=path) from error
    except UnicodeDecodeError as error:
        raise DataError("the sheet is not UTF-8; save it as CSV UTF-8.", file=path) from error
    # Where the comma is the decimal sign, spreadsheets write semicolons.
    head = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ",")
    columns: Sequence[str] = rows.fieldnames or ()
    for column in ("id", *SHORTS):
        if column not in columns:
            raise DataError(f"the column {column} is missing; a sheet has {', '.join(COLUMNS)}.", file=path, line=1)
    found: dict[str, dict[str, int]] = {}
    for number, row in enumerate(rows, 1):
        name = (row["id"] or "").strip()
        where = f"row {number} (id {name or 'missing'})"
        if name not in expected:
            raise DataError(f"{where}: this id is not in the key; change nothing but the ratings.", file=path)
        if name in found:
            raise DataError(f"{where}: this id is there twice.", file=path)
        found[name] = {scale: _rating(row[scale], f"{where}, column {scale}", path) for scale in SHORTS}
    if missing := [name for name in expected if name not in found]:
        raise DataError(f"the row of id {missing[0]} is missing ({len(missing):,} in all).", file=path)
    return found


def _rating(text: str | None, where: str, path: Path) -> int:
    said = (text or "").strip()
    if not said:
        raise DataError(f"{where}: the rating is missing.", file=path)
    try:
        value = float(said.replace(",", "."))
    except ValueError as error:
        raise DataError(f"{where}: {said[:40]!r} is not a number.", file=path) from error
    if not 0 <= value <= HIGHEST or value != int(value):
        raise DataError(f"{where}: {said[:40]} is not a whole number from 0 to {HIGHEST}.", file=path)
    return int(value)
