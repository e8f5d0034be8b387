"""Tables II and III and Figure 3 of StarDTox, from the studies of its runs and the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evenhand.data.realtoxicity import BANDS
from evenhand.papers.base import Bar, Cell, Column, Figure, Grid, Row, Table, published
from evenhand.papers.stardtox.arms import (
    BASES,
    CHOICES,
    DEFAULT,
    ITERATIONS,
    NAME,
    STEERED,
    TEXTS,
    Arm,
    Line,
    choice_lines,
    find_arm,
    size_of,
    sizes,
    text_lines,
)
from evenhand.papers.stardtox.refined import refined_shares
from evenhand.studies.results import ArmResult, StudyResult
from evenhand.studies.tally import ALL

NEEDS_LOGITS = "needs logits: hf/ models"
NOT_RUN = "not run"
_TEXT_COLUMNS = (
    Column("toxicity", "Toxicity", "lower is better"),
    Column("coherence", "Coherence", "higher is better"),
    Column("fluency", "Fluency", "higher is better"),
    Column("relevance", "Relevance", "higher is better"),
    Column("refusal", "Refusals"),
    Column("length", "Words"),
    Column("expected_max_toxicity", "Expected max. toxicity", "lower is better"),
    Column("any_toxic", "P(any ≥ 0.5)", "lower is better"),
)
_CHOICE_COLUMNS = (
    Column("accuracy_ambig", "Accuracy", "higher is better", "Ambiguous"),
    Column("bias_ambig", "Bias", "0 is best", "Ambiguous"),
    Column("unknown_ambig", "Unknown", "", "Ambiguous"),
    Column("accuracy_disambig", "Accuracy", "higher is better", "Disambiguated"),
    Column("bias_disambig", "Bias", "0 is best", "Disambiguated"),
    Column("unknown_disambig", "Unknown", "", "Disambiguated"),
    Column("coverage", "Coverage", "higher is better", "Both"),
)


def table_two(found: StudyResult | None, bases: StudyResult | None, presets: Sequence[str]) -> Table:
    grids: list[Grid] = []
    for band in BANDS:
        rows = [_row(line, found, _TEXT_COLUMNS, band, band) for line in text_lines(presets)]
        # After the row of Self-Debias on this model.
        at = next(i for i, row in enumerate(rows) if row.setting == "this model") + 1
        grids.append(Grid(band, _TEXT_COLUMNS, [*rows[:at], *_base_rows(bases, band), *rows[at:]], lanes=("toxicity",)))
    return Table(
        "table2",
        "Table II: sentence completion",
        "Mean toxicity and quality of the completions, in per cent, by band of the prompts. The paper has the first "
        "four columns; the others say what a low toxicity may have cost or hidden.",
        grids,
        list(found.verdicts) if found else [],
    )


def table_three(found: StudyResult | None, presets: Sequence[str]) -> Table:
    rows = [_row(line, found, _CHOICE_COLUMNS, ALL, CHOICES) for line in choice_lines(presets)]
    return Table(
        "table3",
        "Table III: multiple-choice questions",
        "Accuracy and bias on BBQ, in per cent, pooled over all categories. The paper has accuracy and bias; the share "
        "of “unknown” answers and the coverage tell at what price a low bias comes.",
        [Grid("BBQ", _CHOICE_COLUMNS, rows, lanes=("bias_ambig", "accuracy_disambig"))],
        list(found.verdicts) if found else [],
    )


def _row(line: Line, found: StudyResult | None, columns: Sequence[Column], group: str, table: str) -> Row:
    paper = published(NAME).row(table, line.published_as)
    arm = find_arm(found, line.arm, line.iteration)
    cells = [Cell(arm.estimate(column.name, group) if arm else None, paper.get(column.name)) for column in columns]
    return Row(line.method, line.setting, cells, arm is not None, _note(line, found, arm), line.published_as)


def _note(line: Line, found: StudyResult | None, arm: ArmResult | None) -> str:
    if arm is not None or line.arm is None:
        return ""
    return NEEDS_LOGITS if found is not None and line.arm == STEERED else NOT_RUN


def _base_rows(bases: StudyResult | None, band: str) -> list[Row]:
    """Returns the rows of Self-Debias on models without instruction tuning: the paper's sizes of GPT-2, then others."""
    ours = {arm.models["base"]: arm for arm in _of(bases, STEERED)}
    by_size = {size_of(spec): arm for spec, arm in ours.items() if size_of(spec)}
    rows: list[Row] = []
    for size in sizes():
        name = f"{STEERED_TITLE}, {size}"
        numbers, arm = published(NAME).row(band, name), by_size.get(size)
        cells = [Cell(arm.estimate(c.name, band) if arm else None, numbers.get(c.name)) for c in _TEXT_COLUMNS]
        rows.append(Row(STEERED_TITLE, f"GPT-2 {size}", cells, arm is not None, published_as=name))
    rows += [_base_row(STEERED_TITLE, arm, band) for spec, arm in ours.items() if not size_of(spec)]
    return [*rows, *(_base_row("Base model as it is", arm, band) for arm in _of(bases, DEFAULT))]


STEERED_TITLE = "Self-Debias (Gen)"


def _of(bases: StudyResult | None, arm: Arm) -> list[ArmResult]:
    return [each for each in bases.arms if arm.fits(each.key)] if bases else []


def _base_row(method: str, arm: ArmResult, band: str) -> Row:
    return Row(method, arm.models["base"], [Cell(arm.estimate(column.name, band)) for column in _TEXT_COLUMNS])


def figure_three(bars: Sequence[Bar]) -> Figure:
    return Figure(
        "figure3",
        "Figure 3: what is refined",
        "The share of completions (RealToxicityPrompts, moderate and high) and of answers (BBQ) that were refined in "
        "the first and in the second iteration, in per cent; a bar's length is the number of refinements per 100.",
        [f"Iteration {k}" for k in ITERATIONS],
        bars,
    )


def refined_bars(name: str, folder: Path, presets: Sequence[str]) -> list[Bar]:
    """Returns one bar per data set and iterating arm, grouped by data set as in the paper."""
    if name == BASES:
        return []
    settings = {
        ", ".join(filter(None, [preset, title])): Arm(NAME, preset, performance)
        for title, performance in (
            (("w/ performance", True), ("w/o performance", False)) if name == TEXTS else (("", True),)
        )
        for preset in presets
    }
    key, names = ("band", {band: band for band in BANDS}) if name == TEXTS else (None, {ALL: "BBQ"})
    shares = refined_shares(folder, {setting: arm.fits for setting, arm in settings.items()}, key, ITERATIONS)
    return [
        Bar(title, setting, shares[setting][group])
        for group, title in names.items()
        for setting in settings
        if group in shares.get(setting, {})
    ]
