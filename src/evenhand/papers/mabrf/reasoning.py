"""Figure 4 of the MABRF paper: how the judge's ratings of the reasoning change, question by question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor

from evenhand.benchmarks.base import Metric, share_metric
from evenhand.core.types import Record
from evenhand.papers.base import Bar, Figure, Grid, Row, Table
from evenhand.papers.mabrf.pooled import PooledArm, models_in, pooled
from evenhand.papers.mabrf.rows import both_sides, presets_in, published_rows, side_cells, sides
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL

BINS = ("−3 or less", "−2", "−1", "0", "+1", "+2", "+3 or more")
"""Bins of the rounded change of relevancy."""
_REASONING = (
    ("relevancy_change", "Relevancy, change", "higher is better"),
    ("reasoning_bias_before", "Bias before", "1 is best"),
    ("reasoning_bias", "Bias after", "1 is best"),
)


def bin_metrics() -> list[Metric]:
    """Returns one metric per bin: the share of questions in it."""
    return [share_metric(_bin_name(i), f"Relevancy, change {name}", _in_bin(i)) for i, name in enumerate(BINS)]


def bin_of(change: float) -> int:
    """Returns the bin of a change of relevancy, rounded to the nearest whole number."""
    middle = len(BINS) // 2
    return min(max(floor(change + 0.5) + middle, 0), len(BINS) - 1)


def _bin_name(index: int) -> str:
    return f"relevancy_change_bin_{index}"


def _in_bin(index: int) -> Callable[[Record], bool | None]:
    def success(record: Record) -> bool | None:
        grade = record.grade
        if grade is None or "relevancy" not in grade or "relevancy_before" not in grade:
            return None
        return bin_of(grade["relevancy"] - grade["relevancy_before"]) == index

    return success


def table_of_reasoning(arms: Sequence[PooledArm]) -> Table:
    columns = both_sides(_REASONING)
    ours = [
        Row(model, f"preset {preset}", side_cells(arms, model, preset, _REASONING, ALL), ours=True)
        for model in models_in(arms)
        for preset in presets_in(arms)
    ]
    return Table(
        "figure4_means",
        "Figure 4c: the reasoning before and after",
        "Means of the judge's ratings, each from 1 to 10, over all questions. Of these the paper has the change of "
        "relevancy.",
        [Grid("BBQ", columns, [*ours, *published_rows("figure4", columns)], "Model", digits=2)],
    )


def figure_four(arms: Sequence[PooledArm]) -> Figure:
    """Returns the histograms without and with search: of all models together as in the paper, then of each."""
    bars: list[Bar] = []
    models = models_in(arms)
    for preset in presets_in(arms):
        for side, setting in sides(preset).items():
            fitting = [arm for arm in arms if setting.fits(arm.key)]
            groups = {"All models": fitting} if len(models) > 1 else {}
            groups |= {model: [arm for arm in fitting if arm.model == model] for model in models}
            for name, some in groups.items():
                if some and len(shares := _bins(pooled(some))) == len(BINS):
                    bars.append(Bar(name, f"{side}, {preset}", shares))
    bars.sort(key=lambda bar: bar.name != "All models")
    return Figure(
        "figure4",
        "Figure 4: change of relevancy",
        "The share of questions, in per cent, by how far the judge's rating of relevancy moved from the first "
        "reasoning to the one that was kept, rounded to whole points.",
        BINS,
        bars,
        "histogram",
    )


def _bins(arm: PooledArm) -> list[Estimate]:
    found = [arm.estimate(_bin_name(i)) for i in range(len(BINS))]
    return [each for each in found if each is not None]
