"""Reads people's ratings of the arms from the file that `evenhand annotate import --out` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import DataError
from evenhand.papers.rldf.arms import BASE
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL

FILE = "ratings.json"


@dataclass(frozen=True, slots=True)
class HumanRating:
    """The ratings of one arm on one scale."""

    groups: Mapping[str, Estimate]
    """The mean by type of bias, and over all."""
    kappa: float | None
    """How far the raters agree; None with one rater, or if all ratings are in one band."""
    n: int
    """Number of rated answers."""


Ratings = Mapping[tuple[str, str], HumanRating]
"""(arm, scale) → what people say."""


def read_ratings(file: Path) -> Ratings:
    """Returns (arm, scale) → ratings, with run folders named like the arms; empty without a file."""
    if not file.is_file():
        return {}
    try:
        rows: list[Mapping[str, Any]] = orjson.loads(file.read_bytes())["ratings"]
        return {(_arm(row["run"], row["method"]), row["scale"]): _rating(row) for row in rows}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            "not a file that this version of `evenhand annotate import --out` wrote; import the sheets again.",
            file=file,
        ) from error


def _arm(run: str, method: str) -> str:
    """Returns the arm of a run: a trained model's run has its name; the untrained model has one arm per method."""
    return method if run == BASE else run


def _rating(row: Mapping[str, Any]) -> HumanRating:
    means = {ALL: row["mean"], **row.get("groups", {})}
    groups = {group: _mean(row["scale"], group, mean) for group, mean in means.items()}
    return HumanRating(groups, row["kappa"], row["mean"]["n"])


def _mean(scale: str, group: str, mean: Mapping[str, Any]) -> Estimate:
    return Estimate(scale, group, mean["estimate"], mean["low"], mean["high"], mean["n"])
