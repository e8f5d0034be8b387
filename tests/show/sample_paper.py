"""A page of a paper that was never written, with every kind of cell."""

from __future__ import annotations

import sample_study

from evenhand.papers.base import Bar, Figure, Grid, PaperCell, PaperColumn, PaperPage, PaperRow, PaperTable
from evenhand.studies.results import Estimate


def estimate(metric: str, value: float | None, n: int = 100) -> Estimate:
    low, high = (None, None) if value is None else (value - 5, value + 5)
    return Estimate(metric, "all", value, low, high, n)


def page() -> PaperPage:
    columns = [
        PaperColumn("accuracy", "Accuracy", "higher is better", "Ambiguous"),
        PaperColumn("bias", "Bias", "0 is best", "Ambiguous"),
        PaperColumn("coverage", "Coverage", "", "Both"),
    ]
    rows = [
        PaperRow(
            "Default",
            "",
            [PaperCell(estimate("accuracy", 61.25), 32.7), PaperCell(estimate("bias", -3.5), 58.07), PaperCell()],
        ),
        PaperRow(
            "Ours alone", "", [PaperCell(estimate("accuracy", 50.0)), PaperCell(estimate("bias", None)), PaperCell()]
        ),
        PaperRow("Theirs alone", "XL", [PaperCell(None, 9.3), PaperCell(None, 84.65), PaperCell()], ours=False),
        PaperRow("Neither", "", [PaperCell(), PaperCell(), PaperCell()], ours=False, note="needs logits"),
        PaperRow(
            "Doubtful",
            "",
            [PaperCell(None, 84.0), PaperCell(), PaperCell()],
            ours=False,
            reproducible="No: it is a typo.",
        ),
    ]
    grids = [Grid("moderate", columns, rows), Grid("high", columns, rows), Grid("XL", columns, rows[2:3])]
    bars = [
        Bar("moderate", "with", [estimate("refined_1", 80.0), estimate("refined_2", 40.0)]),
        Bar("high", "without", [estimate("refined_1", 0.0), estimate("refined_2", None)]),
    ]
    return PaperPage(
        title="A paper with fake/model",
        source="A. Author: A paper.",
        lead="100 questions.",
        tables=[PaperTable("table1", "Table I: all", "What was found.", grids, ["This against that: undecided."])],
        figures=[
            Figure("figure1", "Figure 1: parts", "Shares.", ["Iteration 1", "Iteration 2"], bars),
            Figure("figure2", "Figure 2: bins", "Shares.", ["0 or less", "+1 or more"], bars, "histogram"),
        ],
        notes=[("All", "Another model.")],
        warnings=["Only a try."],
        process=sample_study.study(),
    )
