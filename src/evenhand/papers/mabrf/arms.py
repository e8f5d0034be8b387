"""The arms of MABRF's runs, pooled by any metadata key, and which row of which table each of them fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evenhand.benchmarks.base import Metric
from evenhand.papers.base import PRESETS, RELEASED, PaperCell, PaperColumn, PaperRow, preset_of, published
from evenhand.runs.plan import ArmKey
from evenhand.runs.stored import open_sources, told_metrics, walk
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL, Tally, estimate


@dataclass(frozen=True, slots=True)
class PooledArm:
    """One arm of a run with its metrics by group."""

    id: str
    key: ArmKey
    metrics: Mapping[str, Metric]
    tally: Tally

    @property
    def model(self) -> str:
        """The spec of the base model."""
        return self.key.models["base"]

    def estimate(self, metric: str, group: str = ALL) -> Estimate | None:
        """Returns the estimate; None if no sample counts in the metric."""
        if (metric, group) not in self.tally.sums:
            return None
        return estimate(self.metrics[metric], group, self.tally)


def pooled_arms(folder: Path, group_key: str, more: Sequence[Metric] = ()) -> list[PooledArm]:
    """Returns the arms of the run in `folder`; `more` are additional metrics."""
    with open_sources([folder]) as (runs, sources):
        told = {each.id: told_metrics(runs, each.scorers, more, each.arm.method) for each in sources}
        tallies = {source: Tally(metrics, group_key) for source, metrics in told.items()}
        for _, records in walk(sources):
            for source_id, record in records.items():
                tallies[source_id].add(record)
        for tally in tallies.values():
            tally.finish()
        metrics = {source: {each.name: each for each in some} for source, some in told.items()}
        return [PooledArm(each.id, each.arm.key, metrics[each.id], tallies[each.id]) for each in sources]


def models_in(arms: Sequence[PooledArm]) -> list[str]:
    """Returns the base models, in the order of the plan."""
    return list(dict.fromkeys(arm.model for arm in arms))


def find_arm(arms: Sequence[PooledArm], model: str, fits: Callable[[ArmKey], bool]) -> PooledArm | None:
    """Returns the model's arm that `fits`."""
    return next((arm for arm in arms if arm.model == model and fits(arm.key)), None)


def pooled(arms: Sequence[PooledArm]) -> PooledArm:
    """Returns arms of several models as one; the questions stay the clusters, whatever the number of models."""
    if len(arms) == 1:
        return arms[0]
    first = arms[0]
    together = Tally(list(first.metrics.values()), first.tally.group_key)
    for arm in arms:
        for key, sums in arm.tally.sums.items():
            together.sums[key].update(sums)
        together.n.update(arm.tally.n)
    return PooledArm(first.id, first.key, first.metrics, together)


# --- rows ---

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
    """The preset; empty for methods without one."""

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


CLOSED, OPEN = Setting("Closed book", "closed_book"), Setting("Open book", "default")
_SEARCH = "search"


def searched(preset: str) -> Setting:
    """Returns the arm of SQuAD that searches, with a preset; as released, it has the passage as well."""
    beside = " and passage" if preset == RELEASED else ""
    return Setting(f"Search{beside}, {preset}", _SEARCH, preset=preset)


def answer_settings(arms: Sequence[PooledArm]) -> list[Setting]:
    """Returns the rows of SQuAD."""
    return [CLOSED, *map(searched, searches_in(arms)), OPEN]


def searches_in(arms: Sequence[PooledArm]) -> list[str]:
    """Returns the presets with which SQuAD was searched."""
    found = {preset_of(arm.key) for arm in arms if arm.key.method == _SEARCH}
    return [each for each in PRESETS if each in found]


def our_rows(arms: Sequence[PooledArm], settings: Sequence[Setting], columns: Sequence[PaperColumn]) -> list[PaperRow]:
    rows: list[PaperRow] = []
    for model in models_in(arms):
        for setting in settings:
            arm = find_arm(arms, model, setting.fits)
            cells = [PaperCell(arm.estimate(column.name) if arm else None) for column in columns]
            rows.append(PaperRow(model, setting.title, cells, ours=arm is not None, note="" if arm else NOT_RUN))
    return rows


def published_rows(table: str, columns: Sequence[PaperColumn]) -> list[PaperRow]:
    """Returns the paper's rows, named `model, setting`."""
    paper = published(NAME)
    rows: list[PaperRow] = []
    for name, numbers in paper.tables[table].items():
        model, _, setting = name.partition(", ")
        reasons = paper.reproducible[table]
        reason = reasons.get(name) or reasons.get(setting, "")
        cells = [PaperCell(None, numbers.get(column.name)) for column in columns]
        rows.append(PaperRow(model, setting, cells, ours=False, published_as=name, reproducible=reason))
    return rows


def both_sides(metrics: Metrics) -> list[PaperColumn]:
    """Returns the columns without search, then with search."""
    return [
        PaperColumn(name + (SEARCHED if side == WITH else ""), title, hint, side.capitalize())
        for side in (WITHOUT, WITH)
        for name, title, hint in metrics
    ]


def side_cells(arms: Sequence[PooledArm], model: str, preset: str, metrics: Metrics, group: str) -> list[PaperCell]:
    cells: list[PaperCell] = []
    for setting in sides(preset).values():
        arm = find_arm(arms, model, setting.fits)
        cells += [PaperCell(arm.estimate(name, group) if arm else None) for name, _, _ in metrics]
    return cells
