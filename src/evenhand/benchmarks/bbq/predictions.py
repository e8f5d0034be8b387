"""Scores BBQ answers that were produced elsewhere: JSON Lines of {category, example_id, prediction}.

The authors' R code differs in two ways, both in Gender_identity: it leaves out the 16 rows without a target, which here
count in accuracy, and it counts 64 rows twice, since its metadata list them twice. `strict` does the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.bbq.benchmark import BBQForm, group_of
from evenhand.benchmarks.bbq.score import ambiguous_bias, answer_kind, bias_counts, disambiguated_bias
from evenhand.core.errors import DataError
from evenhand.core.files import json_lines
from evenhand.data.bbq import Item
from evenhand.stats import FEW_CLUSTERS, cluster_jackknife

_STATISTICS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "ambig": ambiguous_bias,
    "disambig": disambiguated_bias,
}


@dataclass(frozen=True, slots=True)
class _Prediction:
    choice: int | None
    line: int


@dataclass(slots=True)
class _Cell:
    """The counts of one group in one context."""

    n: int = 0
    unknown: int = 0
    left_out: int = 0
    clusters: dict[str, NDArray[np.float64]] = field(default_factory=dict[str, NDArray[np.float64]])
    """question_index → (T, N, correct, read)"""

    def add(self, item: Item, choice: int | None) -> None:
        self.n += 1
        self.left_out += item.target_loc is None
        if choice is not None:
            kind = answer_kind(choice, item.unknown, item.target_loc)
            self.unknown += kind == "unknown"
            sums = self.clusters.setdefault(item.question_index, np.zeros(4))
            sums += bias_counts(kind, choice == item.label)

    def scores(self, condition: str) -> dict[str, Any]:
        table = np.array(list(self.clusters.values())).reshape(-1, 4)
        target, non_target, correct, read = table.sum(axis=0).tolist()
        bias = cluster_jackknife(table, _STATISTICS[condition], bounds=(-1.0, 1.0)).interval
        return {
            "n": self.n,
            "coverage": _share(read, self.n),
            "accuracy": _share(correct, read),
            "target": int(target),
            "non_target": int(non_target),
            "unknown": self.unknown,
            "unknown_share": _share(self.unknown, read),
            "bias": None if bias.estimate is None else 100 * bias.estimate,
            "bias_interval": None if bias.low is None or bias.high is None else [100 * bias.low, 100 * bias.high],
            "left_out": self.left_out,
            "clusters": len(table),
            "few_clusters": len(table) < FEW_CLUSTERS,
        }


def score_predictions(
    path: str | Path, benchmark: BBQForm, *, strict: bool = False
) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns group → context → scores for the categories in the file; bias × 100, shares 0–1, None = undefined.

    `n` counts all rows, including null predictions; `left_out` counts rows without a known target. Intervals are
    clustered by the questions (templates) of the cell. `strict` gives the numbers of the authors' R code.
    """
    file = Path(path)
    predictions = _read(file, benchmark)
    result: dict[str, dict[str, dict[str, Any]]] = {}
    for category in sorted(predictions):
        cells = _cells(file, benchmark, category, predictions[category], strict=strict)
        for group in sorted(cells):
            result[group] = {condition: cell.scores(condition) for condition, cell in cells[group].items()}
    return result


def _cells(
    file: Path, benchmark: BBQForm, category: str, predictions: dict[int, _Prediction], *, strict: bool
) -> dict[str, dict[str, _Cell]]:
    """Joins the predictions of one category to its items, in one pass over the data."""
    cells: dict[str, dict[str, _Cell]] = {}
    repeated = benchmark.source.repeated(category) if strict else ()
    for item in benchmark.items(category):
        prediction = predictions.pop(item.example_id, None)
        if prediction is not None and not (strict and item.target_loc is None):
            group = cells.setdefault(group_of(item), {"ambig": _Cell(), "disambig": _Cell()})
            for _ in range(2 if item.example_id in repeated else 1):
                group[item.condition].add(item, prediction.choice)
    for example_id, prediction in predictions.items():
        raise DataError(
            f"there is no example {example_id} in {category} of this benchmark. "
            "Use the official category and example_id.",
            file=file,
            line=prediction.line,
        )
    return cells


def _read(file: Path, benchmark: BBQForm) -> dict[str, dict[int, _Prediction]]:
    predictions: dict[str, dict[int, _Prediction]] = {}
    for number, row in json_lines(file):
        try:
            category, example_id, choice = _checked(row, benchmark)
            known = predictions.setdefault(category, {})
            if example_id in known:
                raise ValueError(
                    f"{category} {example_id} is already in line {known[example_id].line}; keep one row per example"
                )
            known[example_id] = _Prediction(choice, number)
        except ValueError as error:
            raise DataError(f"{error}.", file=file, line=number) from error
    if not predictions:
        raise DataError("there are no predictions in the file.", file=file)
    return predictions


def _checked(row: Mapping[str, Any], benchmark: BBQForm) -> tuple[str, int, int | None]:
    for name in ("category", "example_id", "prediction"):
        if name not in row:
            raise ValueError(f'the field "{name}" is missing; each row needs category, example_id and prediction')
    category, example_id, choice = row["category"], row["example_id"], row["prediction"]
    if category not in benchmark.categories:
        near = difflib.get_close_matches(str(category), benchmark.categories, n=1, cutoff=0.5)
        hint = f"the nearest is {near[0]}" if near else f"known: {', '.join(benchmark.categories)}"
        raise ValueError(f"{category!r} is not a category of this benchmark; {hint}")
    # bool is an int in Python: true would pass for option 1.
    if type(example_id) is not int:
        raise ValueError(f"example_id is {example_id!r}, not a whole number")
    if choice is not None and (type(choice) is not int or not 0 <= choice <= 2):
        raise ValueError(f"prediction is {choice!r}; it must be 0, 1 or 2, or null where no answer could be read")
    return category, example_id, choice


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
