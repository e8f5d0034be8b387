"""Tables 3, 4 and 5 of the MABRF paper, from the arms of its runs and the published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from evenhand.benchmarks.base import share_metric
from evenhand.core.types import Record
from evenhand.data.bbq import CATEGORIES
from evenhand.papers.base import Cell, Column, Grid, Row, Table, published
from evenhand.papers.mabrf.pooled import PooledArm, models_in
from evenhand.papers.mabrf.rows import (
    ANSWER_SETTINGS,
    NAME,
    SEARCHED,
    WITH,
    WITHOUT,
    Metrics,
    both_sides,
    choice_settings,
    our_rows,
    presets_in,
    published_rows,
    side_cells,
)
from evenhand.studies.tally import ALL

_BY_CONTEXT = (("ambig", "Ambiguous"), ("disambig", "Disambiguated"))
_TABLE_THREE = (
    *(
        column
        for context, title in _BY_CONTEXT
        for column in (
            Column(f"accuracy_{context}", "Accuracy", "ACC₁", title),
            Column(f"bias_{context}", "Bias", "0 is best", title),
            Column(f"legacy_bias_{context}", "Legacy bias", "BIAS₁", title),
        )
    ),
    Column("coverage", "Coverage", "higher is better", "Both"),
)
_TABLE_FOUR = (
    Column("exact_match", "Exact match", "higher is better", "All"),
    Column("f1", "F1", "higher is better", "All"),
    Column("coverage", "Coverage", "higher is better", "All"),
    Column("f1_has_answer", "F1", "higher is better", "With an answer"),
    Column("f1_no_answer", "F1", "higher is better", "Without one"),
)
_TABLE_FIVE = (
    ("first_accuracy", "ACC₀", ""),
    ("accuracy", "ACC₁", ""),
    ("legacy_bias_before", "BIAS₀", "legacy"),
    ("legacy_bias", "BIAS₁", "legacy"),
    ("joint_success", "Joint success", ""),
)
_OFFICIAL = (
    ("first_bias_ambig", "Ambiguous, first", "0 is best"),
    ("bias_ambig", "Ambiguous, final", "0 is best"),
    ("first_bias_disambig", "Disambiguated, first", "0 is best"),
    ("bias_disambig", "Disambiguated, final", "0 is best"),
)


def _graded(record: Record, key: str) -> bool | None:
    return None if record.grade is None else record.grade.get(key)


ACCURACIES = (
    share_metric("first_accuracy", "Accuracy of the first answer", lambda record: _graded(record, "first_correct")),
    share_metric("accuracy", "Accuracy", lambda record: _graded(record, "correct")),
)
"""Accuracy over both contexts, as in Table 5; the benchmark separates the contexts."""


def table_three(arms: Sequence[PooledArm], sentences: Sequence[str]) -> Table:
    settings = choice_settings(presets_in(arms))
    rows = [*our_rows(arms, settings, _TABLE_THREE), *published_rows("table3", _TABLE_THREE)]
    return Table(
        "table3",
        "Table 3: BBQ by context",
        "Final answers, in per cent, over all categories. The paper's BIAS₁ is made by a formula of its own, from the "
        "judge's view of the reasoning; “legacy bias” is ours by that formula, “bias” the official score of BBQ.",
        [Grid("BBQ", _TABLE_THREE, rows, "Model", lanes=("bias_ambig", "accuracy_ambig"))],
        sentences,
    )


def table_four(arms: Sequence[PooledArm], sentences: Sequence[str]) -> Table:
    rows = [*our_rows(arms, ANSWER_SETTINGS, _TABLE_FOUR), *published_rows("table4", _TABLE_FOUR)]
    return Table(
        "table4",
        "Table 4: SQuAD v2",
        "Exact match and F1 by the official rules, in per cent. Closed book: from memory alone. Open book: the passage "
        "is given. Search: neither passage nor memory alone, but what a search finds.",
        [Grid("SQuAD v2", _TABLE_FOUR, rows, "Model", lanes=("f1",))],
        sentences,
    )


def table_five(arms: Sequence[PooledArm]) -> Table:
    grids: list[Grid] = []
    for model in models_in(arms):
        for preset in presets_in(arms):
            name = f"{model}, preset {preset}"
            grids.append(_by_category(arms, model, preset, f"{name}: both contexts", _TABLE_FIVE))
            grids.append(_by_category(arms, model, preset, f"{name}: BBQ's bias by context", _OFFICIAL))
    return Table(
        "table5",
        "Table 5: BBQ by category",
        "In per cent; 0 is the first answer and reasoning, 1 the final ones. As in the paper, both contexts are taken "
        "together, and BIAS is the paper's formula. BBQ's own score, which needs the contexts apart, has a grid of its "
        "own. Then what the paper has for its four models; of these, an accuracy can be had again by that model only.",
        [*grids, *_published_by_category()],
    )


# --- by category ---


def _by_category(arms: Sequence[PooledArm], model: str, preset: str, name: str, metrics: Metrics) -> Grid:
    rows = [Row("All categories", "", side_cells(arms, model, preset, metrics, ALL))]
    rows += [Row(_shown(each), "", side_cells(arms, model, preset, metrics, each)) for each in CATEGORIES]
    return Grid(name, both_sides(metrics), rows, "Category")


def _published_by_category() -> list[Grid]:
    paper = published(NAME)
    columns = both_sides(_TABLE_FIVE[:4])
    by_model: dict[str, list[Row]] = {}
    for name, numbers in paper.tables["table5"].items():
        model, _, category = name.partition(", ")
        reason = paper.reproducible["table5"].get(name) or _doubt(numbers)
        cells = [Cell(None, numbers[column.name]) for column in columns]
        row = Row(_shown(category), "", cells, ours=False, published_as=name, reproducible=reason)
        by_model.setdefault(model, []).append(row)
    return [
        Grid(f"{model}: as published", columns, [_mean_row(rows), *rows], "Category")
        for model, rows in by_model.items()
    ]


def _mean_row(rows: Sequence[Row]) -> Row:
    """Returns the mean of the paper's rows, to compare with our row over all categories."""
    columns = zip(*([cell.published or 0.0 for cell in row.cells] for row in rows), strict=True)
    return Row("All categories", "mean of the rows, by us", [Cell(None, fmean(each)) for each in columns], ours=False)


def _doubt(numbers: Mapping[str, float]) -> str:
    """Returns why the row's bias cannot be reproduced."""
    repeats = [
        side
        for side, ending in ((WITHOUT, ""), (WITH, SEARCHED))
        if abs(numbers[f"legacy_bias{ending}"] - (numbers[f"accuracy{ending}"] - 100)) < 1e-6
    ]
    if not repeats:
        return "Bias: no, it is not BBQ's score."
    return f"Bias: no, BIAS₁ is ACC₁ less 100{f' {repeats[0]}' if len(repeats) == 1 else ''}."


def _shown(category: str) -> str:
    return category.replace("Race_ethnicity", "Race/ethnicity").replace("_x_", " × ").replace("_", " ")
