"""Rows of the MABRF tables: which arm belongs to which row, and the published rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.papers.base import PRESETS, Cell, Column, Row, preset_of, published
from evenhand.papers.mabrf.pooled import PooledArm, find_arm, models_in
from evenhand.runs.plan import ArmKey

NAME = "mabrf"
NOT_RUN = "not run"
WITHOUT, WITH = "without search", "with search"
SEARCHED = "_with_search"
"""Suffix of columns with search, in rows that have both."""
Metrics = Sequence[tuple[str, str, str]]
"""(name, title, hint) of metrics with two columns, without and with search."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A method setting with its own row or columns."""

    title: str
    method: str
    searches: bool = False
    preset: str = ""
    """The preset of MABRF; empty for other methods."""

    def fits(self, key: ArmKey) -> bool:
        searches = key.method == NAME and bool(key.options.get("search"))
        fitting = key.method == self.method and searches == self.searches
        return fitting and (not self.preset or preset_of(key) == self.preset)


def sides(preset: str) -> dict[str, Setting]:
    """Returns MABRF with a preset, without and with search."""
    return {side: Setting(f"MABRF {side}, {preset}", NAME, side == WITH, preset) for side in (WITHOUT, WITH)}


DEFAULT, COT = Setting("Default", "default"), Setting("Chain of thought", "cot")


def choice_settings(presets: Sequence[str]) -> list[Setting]:
    """Returns the rows of BBQ."""
    return [DEFAULT, COT, *(setting for preset in presets for setting in sides(preset).values())]


def presets_in(arms: Sequence[PooledArm]) -> list[str]:
    """Returns the presets of MABRF that were run."""
    found = {preset_of(arm.key) for arm in arms if arm.key.method == NAME}
    return [each for each in PRESETS if each in found]


ANSWER_SETTINGS = (Setting("Closed book", "closed_book"), Setting("Search", "search"), Setting("Open book", "default"))


def our_rows(arms: Sequence[PooledArm], settings: Sequence[Setting], columns: Sequence[Column]) -> list[Row]:
    rows: list[Row] = []
    for model in models_in(arms):
        for setting in settings:
            arm = find_arm(arms, model, setting.fits)
            cells = [Cell(arm.estimate(column.name) if arm else None) for column in columns]
            rows.append(Row(model, setting.title, cells, ours=arm is not None, note="" if arm else NOT_RUN))
    return rows


def published_rows(table: str, columns: Sequence[Column]) -> list[Row]:
    """Returns the paper's rows, named `model, setting`."""
    paper = published(NAME)
    rows: list[Row] = []
    for name, numbers in paper.tables[table].items():
        model, _, setting = name.partition(", ")
        reasons = paper.reproducible[table]
        reason = reasons.get(name) or reasons.get(setting, "")
        cells = [Cell(None, numbers.get(column.name)) for column in columns]
        rows.append(Row(model, setting, cells, ours=False, published_as=name, reproducible=reason))
    return rows


def both_sides(metrics: Metrics) -> list[Column]:
    """Returns the columns without search, then with search."""
    return [
        Column(name + (SEARCHED if side == WITH else ""), title, hint, side.capitalize())
        for side in (WITHOUT, WITH)
        for name, title, hint in metrics
    ]


def side_cells(arms: Sequence[PooledArm], model: str, preset: str, metrics: Metrics, group: str) -> list[Cell]:
    cells: list[Cell] = []
    for setting in sides(preset).values():
        arm = find_arm(arms, model, setting.fits)
        cells += [Cell(arm.estimate(name, group) if arm else None) for name, _, _ in metrics]
    return cells
