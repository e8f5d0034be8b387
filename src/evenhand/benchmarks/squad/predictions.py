"""Scores SQuAD answers that were produced elsewhere, in the official form: a JSON object of question id → answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson
from numpy.typing import NDArray

from evenhand.benchmarks.squad import SquadForm, exact_match, f1
from evenhand.core.errors import DataError
from evenhand.core.files import read_bytes
from evenhand.stats import FEW_CLUSTERS, Interval, bounded_mean_interval, share_interval

GROUPS = ("all", "answerable", "unanswerable")


def score_predictions(path: str | Path, benchmark: SquadForm) -> dict[str, dict[str, Any]]:
    """Returns group → scores × 100 over all questions of the benchmark; None = undefined.

    A question without a prediction counts as wrong and in `missing`. Intervals are clustered by article.
    """
    file = Path(path)
    predictions = _read(file)
    sums: dict[str, dict[str, NDArray[np.float64]]] = {group: {} for group in GROUPS}
    for question in benchmark.source.questions():
        given = predictions.pop(question.id, None)
        scores = (0.0, 0.0) if given is None else (exact_match(given, question.answers), f1(given, question.answers))
        for group in ("all", "answerable" if question.answers else "unanswerable"):
            article = sums[group].setdefault(question.title, np.zeros(4))
            article += (*scores, 1.0, given is None)
    for unknown in predictions:
        raise DataError(f"there is no question {unknown!r} in {benchmark.name}; ids are the official ones.", file=file)
    return {group: _scores(articles) for group, articles in sums.items()}


def _scores(articles: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    table = np.array(list(articles.values())).reshape(-1, 4)
    _, _, n, missing = (round(total) for total in table.sum(axis=0).tolist())
    mean = bounded_mean_interval(table[:, 1:3])
    exact = share_interval(table[:, [0, 2]])
    return {
        "n": n,
        "missing": missing,
        "exact_match": _percent(exact.estimate),
        "exact_match_interval": _percents(exact),
        "f1": _percent(mean.estimate),
        "f1_interval": _percents(mean),
        "clusters": len(table),
        "few_clusters": len(table) < FEW_CLUSTERS,
    }


def _read(file: Path) -> dict[str, str]:
    try:
        found: Any = orjson.loads(read_bytes(file))
    except orjson.JSONDecodeError as error:
        raise DataError(f"not valid JSON ({error}).", file=file, line=error.lineno) from error
    if not isinstance(found, dict):
        raise DataError("predictions are one JSON object: question id → answer, empty for none.", file=file)
    predictions = cast(dict[str, Any], found)
    for name, text in predictions.items():
        if not isinstance(text, str):
            raise DataError(f"the answer to {name} is {text!r:.60}, not a text; leave it empty for none.", file=file)
    if not predictions:
        raise DataError("there are no predictions in the file.", file=file)
    return predictions


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _percents(interval: Interval) -> list[float] | None:
    return None if interval.low is None or interval.high is None else [100 * interval.low, 100 * interval.high]
