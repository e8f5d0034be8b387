"""Reads people's ratings of the arms from the file that `evenhand annotate import --out` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from evenhand.errors import DataError
from evenhand.papers.rldf.arms import BASE
from evenhand.papers.rldf.tables import Ratings
from evenhand.studies.results import Estimate

FILE = "ratings.json"


def read_ratings(file: Path) -> Ratings:
    """Returns (arm, scale) → mean rating, with run folders named like the arms; empty without a file."""
    if not file.is_file():
        return {}
    try:
        rows: list[Mapping[str, Any]] = orjson.loads(file.read_bytes())["ratings"]
        return {(_arm(row["run"], row["method"]), row["scale"]): _mean(row["scale"], row["mean"]) for row in rows}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            "not a file that this version of `evenhand annotate import --out` wrote; import the sheets again.",
            file=file,
        ) from error


def _arm(run: str, method: str) -> str:
    """Returns the arm of a run: a trained model's run has its name; the untrained model has one arm per method."""
    return method if run == BASE else run


def _mean(scale: str, mean: Mapping[str, Any]) -> Estimate:
    return Estimate(scale, "all", mean["estimate"], mean["low"], mean["high"], mean["n"])
