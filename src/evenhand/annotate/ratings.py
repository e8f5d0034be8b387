"""Imports filled-in rating sheets: means with intervals per arm, and the raters' agreement per scale.

Agreement is Fleiss' kappa on three bands of the scale (0–33, 34–66, 67–100), because raters rarely give the very same
number. Ratings of an item are averaged over raters first, so intervals cover the choice of questions, not of raters.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import orjson

from evenhand.annotate.sheets import COLUMNS, FORMAT, KEY, RATERS, SHORTS
from evenhand.errors import DataError
from evenhand.scorers.opinion import HIGHEST
from evenhand.stats import Interval, fleiss_kappa, mean_interval

BANDS = (34, 67)
"""Lower bounds of the second and third band."""

Sheet = Mapping[str, Mapping[str, int]]
"""Item id → scale → rating."""


@dataclass(frozen=True, slots=True)
class ArmRating:
    """Human ratings of one arm on one scale."""

    arm: str
    """Its label."""
    run: str
    method: str
    scale: str
    mean: Interval
    difference: Interval | None
    """Difference from the baseline on the same questions; None for the baseline itself."""
    kappa: float | None
    """Agreement of the raters on this arm's answers."""
    groups: Mapping[str, Interval] = field(default_factory=dict[str, Interval])
    """The mean by type of bias, where questions have one."""


@dataclass(frozen=True, slots=True)
class HumanRatings:
    """Results of all sheets in a folder."""

    arms: Sequence[str]
    baseline: str
    raters: int
    items: int
    ratings: Sequence[ArmRating]
    kappa: Mapping[str, float | None]
    """Agreement per scale, over all answers."""

    def note(self) -> dict[str, Any]:
        """Return the ratings as JSON values."""
        return {**asdict(self), "bands": [f"0–{BANDS[0] - 1}", f"{BANDS[0]}–{BANDS[1] - 1}", f"{BANDS[1]}–{HIGHEST}"]}


def import_ratings(folder: Path) -> HumanRatings:
    """Read the sheets of a folder and match every rating to its arm."""
    key = _read_key(folder / KEY)
    items: Mapping[str, Mapping[str, str]] = key["items"]
    sheets = [_read_sheet(folder / RATERS / f"{rater}.csv", items.keys()) for rater in key["raters"]]
    arms, baseline = key["arms"], key["baseline"]
    origins: Mapping[str, Mapping[str, str]] = key.get("origins") or {arm: _origin(arm) for arm in arms}
    ratings = [_arm_rating(arm, origins[arm], scale, baseline, items, sheets) for scale in SHORTS for arm in arms]
    kappa = {scale: _kappa(sheets, list(items), scale) for scale in SHORTS}
    return HumanRatings(arms, baseline, len(sheets), len(items), ratings, kappa)


def _origin(label: str) -> dict[str, str]:
    """Return run and method for a key of an older version, which does not name them."""
    run, _, method = label.rpartition(": ")
    return {"run": run, "method": method}


def _arm_rating(
    arm: str,
    origin: Mapping[str, str],
    scale: str,
    baseline: str,
    items: Mapping[str, Mapping[str, str]],
    sheets: Sequence[Sheet],
) -> ArmRating:
    own = {item["sample"]: name for name, item in items.items() if item["arm"] == arm}
    baseline_items = {item["sample"]: name for name, item in items.items() if item["arm"] == baseline}
    clusters = [items[name]["cluster"] or sample for sample, name in own.items()]

    def mean_rating(name: str) -> float:
        return fmean(sheet[name][scale] for sheet in sheets)

    values = [mean_rating(name) for name in own.values()]
    changes = [mean_rating(name) - mean_rating(baseline_items[sample]) for sample, name in own.items()]
    difference = None if arm == baseline else mean_interval(changes, clusters, bounds=(-HIGHEST, HIGHEST))
    kappa = _kappa(sheets, list(own.values()), scale)
    mean = mean_interval(values, clusters, bounds=(0, HIGHEST))
    groups: dict[str, Interval] = {}
    for group in dict.fromkeys(items[name].get("group", "") for name in own.values()):
        chosen = [place for place, name in enumerate(own.values()) if items[name].get("group", "") == group]
        if group:
            part = [values[place] for place in chosen], [clusters[place] for place in chosen]
            groups[group] = mean_interval(*part, bounds=(0, HIGHEST))
    return ArmRating(arm, origin["run"], origin["method"], scale, mean, difference, kappa, groups)


def _kappa(sheets: Sequence[Sheet], names: Sequence[str], scale: str) -> float | None:
    """Fleiss' kappa of the bands; None with a single rater or if all ratings are in one band."""
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
            f"cannot be read: {error.strerror}. Name a folder written by `evenhand annotate export`.", file=path
        ) from error
    except orjson.JSONDecodeError as error:
        raise DataError(f"not valid JSON ({error}). Restore the file or export again.", file=path) from error
    if not isinstance(content, dict) or cast(dict[str, Any], content).get("format") != FORMAT:
        raise DataError(
            f"not a key file of `evenhand annotate export`: its `format` is not {FORMAT}. Name the exported folder.",
            file=path,
        )
    return cast(dict[str, Any], content)


def _read_sheet(path: Path, expected: Collection[str]) -> Sheet:
    """Read a rater's sheet; the first mistake is reported with its row and column."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"the sheet cannot be read: {error.strerror}.", file=path) from error
    except UnicodeDecodeError as error:
        raise DataError("the sheet is not UTF-8. Save it as CSV UTF-8.", file=path) from error
    # Spreadsheets separate by semicolon in locales with a decimal comma.
    header = text.partition("\n")[0]
    delimiter = ";" if header.count(";") > header.count(",") else ","
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    columns: Sequence[str] = rows.fieldnames or ()
    for column in ("id", *SHORTS):
        if column not in columns:
            raise DataError(
                f"the column {column} is missing. A sheet has the columns {', '.join(COLUMNS)}.", file=path, line=1
            )
    ratings: dict[str, dict[str, int]] = {}
    for number, row in enumerate(rows, 1):
        name = (row["id"] or "").strip()
        where = f"row {number} (id {name or 'missing'})"
        if name not in expected:
            raise DataError(f"{where}: this id is not in the key. Restore it; only ratings may be changed.", file=path)
        if name in ratings:
            raise DataError(f"{where}: this id occurs twice. Remove one of the rows.", file=path)
        ratings[name] = {scale: _rating(row[scale], f"{where}, column {scale}", path) for scale in SHORTS}
    if missing := [name for name in expected if name not in ratings]:
        raise DataError(f"the row with id {missing[0]} is missing ({len(missing):,} missing in all).", file=path)
    return ratings


def _rating(text: str | None, where: str, path: Path) -> int:
    text = (text or "").strip()
    if not text:
        raise DataError(f"{where}: the rating is missing.", file=path)
    try:
        value = float(text.replace(",", "."))
    except ValueError as error:
        raise DataError(f"{where}: {text[:40]!r} is not a number.", file=path) from error
    if not 0 <= value <= HIGHEST or value != int(value):
        raise DataError(f"{where}: {text[:40]} is not a whole number from 0 to {HIGHEST}.", file=path)
    return int(value)
