"""What people made of the arms, from the file that `evenhand annotate import --out` writes."""

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
    """(arm, scale) → the mean rating, of the arms whose runs lie in folders of their names; nothing without a file."""
    if not file.is_file():
        return {}
    try:
        rows: list[Mapping[str, Any]] = orjson.loads(file.read_bytes())["ratings"]
        return {(_arm(row["arm"]), row["scale"]): _mean(row["scale"], row["mean"]) for row in rows}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise DataError("not a file that `evenhand annotate import --out` wrote; remove it.", file=file) from error


def _arm(label: str) -> str:
    """`rldf_sr: default` is the arm rldf_sr, and `base: cot` the arm cot."""
    folder, _, method = label.partition(": ")
    return method if folder == BASE else folder


def _mean(scale: str, mean: Mapping[str, Any]) -> Estimate:
    return Estimate(scale, "all", mean["estimate"], mean["low"], mean["high"], mean["n"])
