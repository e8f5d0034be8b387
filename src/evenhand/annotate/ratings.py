"""Imports filled-in rating sheets: means with intervals per arm, and the raters' agreement per scale.

Agreement is Fleiss' kappa on three bands of the scale (0–33, 34–66, 67–100), because raters rarely give the very same
number. Ratings of an item are averaged over raters first, so intervals cover the choice of questions, not of raters.
A rater who cannot tell gives no rating: means are of the others, and kappa leaves that answer out. So it is with a cell
that was left empty, which is counted apart.

Ratings of the web page are written into the sheets first, from which everything else reads them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from evenhand.annotate.journal import FILE, Journal
from evenhand.annotate.sheets import CANNOT_TELL, FORMAT, KEY, RATERS, planned, read_rows, rubric_in, sheet_text
from evenhand.core import files
from evenhand.core.errors import DataError
from evenhand.core.files import read_json
from evenhand.data.rubrics import POINTS, Rubrics
from evenhand.stats import Interval, fleiss_interval, mean_interval

BANDS = (34, 67)
"""Lower bounds of the second and third band."""
BAND_NAMES = (f"0–{BANDS[0] - 1}", f"{BANDS[0]}–{BANDS[1] - 1}", f"{BANDS[1]}–{POINTS}")
Sheet = Mapping[str, Mapping[str, int | None]]
"""Item id → scale → rating; None if the rater cannot tell, and no scale where the cell is empty."""


def fill_sheets(folder: Path, key: Mapping[str, Any]) -> int:
    """Fill the raters' sheets and return the number of ratings; cells without one stay as they are."""
    path = folder / FILE
    if not path.exists():
        return 0
    store = Journal(path)
    try:
        given = {(each.rater, each.item, each.scale): each.value for each in store.current()}
    finally:
        store.close()
    shorts = rubric_in(key).shorts
    for rater in key["raters"]:
        sheet = folder / RATERS / f"{rater}.csv"
        rows = read_rows(sheet, shorts)
        before = [dict(row) for row in rows]
        for row in rows:
            for scale in shorts:
                cell = (rater, row["id"].strip(), scale)
                if cell in given:
                    row[scale] = CANNOT_TELL if given[cell] is None else str(given[cell])
        if rows != before:
            files.write_bytes(sheet, sheet_text(list(rows[0]), [list(row.values()) for row in rows]).encode())
    return len(given)


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
    agreement: Interval
    """The same with its limits."""
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
    agreement: Mapping[str, Interval]
    """The same with its limits."""
    cannot_tell: Mapping[str, int] = field(default_factory=dict[str, int])
    """How often raters could not tell, per scale."""
    better: Mapping[str, str] = field(default_factory=dict[str, str])
    """Scale → which ratings are better, lower or higher."""
    missing: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many cells of those who rated are empty, per scale."""
    absent: Sequence[str] = ()
    """Raters without a rating; nothing else counts them."""

    def note(self) -> dict[str, Any]:
        """Return the ratings as JSON values."""
        return {**asdict(self), "bands": list(BAND_NAMES)}


def import_ratings(folder: Path) -> HumanRatings:
    """Read the sheets of a folder, filled with the ratings of the web page, and match every rating to its arm."""
    key = read_key(folder)
    fill_sheets(folder, key)
    items: Mapping[str, Mapping[str, str]] = key["items"]
    given = read_sheets(folder, key)
    sheets, absent = [*given.values()], [rater for rater in key["raters"] if rater not in given]
    arms, baseline, rubric = key["arms"], key["baseline"], rubric_in(key)
    shorts, better = rubric.shorts, {each.short: each.better for each in rubric.criteria}
    origins: Mapping[str, Mapping[str, str]] = key.get("origins") or {arm: _origin(arm) for arm in arms}
    ratings = [_arm_rating(arm, origins[arm], scale, baseline, items, sheets) for scale in shorts for arm in arms]
    agreement = {scale: _agreement(sheets, items, items, scale) for scale in shorts}
    kappa = {scale: found.estimate for scale, found in agreement.items()}
    rows = [row for sheet in sheets for row in sheet.values()]
    unsure = {scale: sum(row.get(scale, 0) is None for row in rows) for scale in shorts}
    missing = {scale: sum(scale not in row for row in rows) for scale in shorts}
    return HumanRatings(
        arms, baseline, len(sheets), len(items), ratings, kappa, agreement, unsure, better, missing, absent
    )


def read_sheets(folder: Path, key: Mapping[str, Any]) -> dict[str, Sheet]:
    """Read the sheets of all raters who gave a rating; ratings are in points of 100."""
    rubric = rubric_in(key)
    sheets = {rater: _read_sheet(folder / RATERS / f"{rater}.csv", own, rubric) for rater, own in planned(key).items()}
    if not (given := {rater: sheet for rater, sheet in sheets.items() if any(sheet.values())}):
        raise DataError("there is no rating in any sheet yet. Fill them in, and import again.", file=folder / RATERS)
    return given


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
    means = people_means(sheets, items, scale)
    own = {item["sample"]: name for name, item in items.items() if item["arm"] == arm and name in means}
    compared = {item["sample"]: name for name, item in items.items() if item["arm"] == baseline and name in means}
    clusters = {sample: items[name]["cluster"] or sample for sample, name in own.items()}
    both = [sample for sample in own if sample in compared]
    changes = [means[own[sample]] - means[compared[sample]] for sample in both]
    difference = mean_interval(changes, [clusters[each] for each in both], bounds=(-POINTS, POINTS))
    groups: dict[str, Interval] = {}
    for group in dict.fromkeys(items[name].get("group", "") for name in own.values()):
        if group:
            groups[group] = _mean(
                {s: name for s, name in own.items() if items[name].get("group") == group}, means, clusters
            )
    agreement = _agreement(sheets, items, [name for name, item in items.items() if item["arm"] == arm], scale)
    return ArmRating(
        arm,
        origin["run"],
        origin["method"],
        scale,
        _mean(own, means, clusters),
        None if arm == baseline else difference,
        agreement.estimate,
        agreement,
        groups,
    )


def people_means(sheets: Sequence[Sheet], names: Iterable[str], scale: str) -> dict[str, float]:
    """Return the raters' mean of every answer that somebody rated."""
    given = {name: _given(sheets, name, scale) for name in names}
    return {name: fmean(values) for name, values in given.items() if values}


def _given(sheets: Sequence[Sheet], name: str, scale: str) -> list[int]:
    cells = (sheet[name].get(scale) for sheet in sheets if name in sheet)
    return [value for value in cells if value is not None]


def _mean(own: Mapping[str, str], means: Mapping[str, float], clusters: Mapping[str, str]) -> Interval:
    values = [means[name] for name in own.values()]
    return mean_interval(values, [clusters[sample] for sample in own], bounds=(0, POINTS))


def band(value: float) -> int:
    return bisect_right(BANDS, value)


def _agreement(
    sheets: Sequence[Sheet], items: Mapping[str, Mapping[str, str]], names: Iterable[str], scale: str
) -> Interval:
    """Fleiss' kappa of the bands, over answers with all ratings; undefined with one rater or all ratings in one band.

    Without an absent rater's sheet, some answers of a plan have fewer ratings than others.
    """
    table: list[list[int]] = []
    clusters: list[str] = []
    names = list(names)
    most = max((sum(name in sheet for sheet in sheets) for name in names), default=0)
    for name in names:
        values = _given(sheets, name, scale)
        if len(values) == most:
            bands = [band(value) for value in values]
            table.append([bands.count(each) for each in range(len(BANDS) + 1)])
            clusters.append(items[name]["cluster"] or items[name]["sample"])
    return fleiss_interval(table, clusters) if table else Interval()


def read_key(folder: Path) -> dict[str, Any]:
    path = folder / KEY
    content: Any = read_json(path, "Name a folder written by `evenhand annotate export`.")
    if not isinstance(content, dict) or cast(dict[str, Any], content).get("format") != FORMAT:
        raise DataError(
            f"not a key file of `evenhand annotate export`: its `format` is not {FORMAT}. Name the exported folder.",
            file=path,
        )
    return cast(dict[str, Any], content)


def _read_sheet(path: Path, expected: Collection[str], rubric: Rubrics) -> Sheet:
    """Read a rater's sheet; the first mistake is reported with its row and column."""
    wanted = set(expected)
    ratings: dict[str, dict[str, int | None]] = {}
    for number, row in enumerate(read_rows(path, rubric.shorts), 1):
        name = row["id"].strip()
        where = f"row {number} (id {name or 'missing'})"
        if name not in wanted:
            raise DataError(f"{where}: this id is not in the key. Restore it; only ratings may be changed.", file=path)
        if name in ratings:
            raise DataError(f"{where}: this id occurs twice. Remove one of the rows.", file=path)
        ratings[name] = {
            scale: _rating(row[scale], f"{where}, column {scale}", path, rubric)
            for scale in rubric.shorts
            if row[scale].strip()
        }
    if missing := [name for name in expected if name not in ratings]:
        raise DataError(f"the row with id {missing[0]} is missing ({len(missing):,} missing in all).", file=path)
    return ratings


def _rating(text: str, where: str, path: Path, rubric: Rubrics) -> int | None:
    text = text.strip()
    if text == CANNOT_TELL:
        return None
    try:
        value = float(text.replace(",", "."))
    except ValueError as error:
        raise DataError(f"{where}: {text[:40]!r} is not a number.", file=path) from error
    if not 0 <= value <= rubric.scale or value != int(value):
        raise DataError(f"{where}: {text[:40]} is not a whole number from 0 to {rubric.scale}.", file=path)
    return rubric.points(int(value))
