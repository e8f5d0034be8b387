"""Who rates what: the raters' names, and which questions each of them gets. Pure functions."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.core.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def rater_names(text: str) -> list[str]:
    """Return the names of a list such as `ann,ben,cy`; a number stands for that many numbered raters."""
    if re.fullmatch(r"-?\d+", text.strip()):
        count = int(text)
        if count < 1:
            raise UsageError(f"At least 1 rater is needed, not {count}.")
        return [f"rater-{number}" for number in range(1, count + 1)]
    names = [name.strip() for name in text.split(",")]
    for name in names:
        # A sheet is named after its rater.
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be a rater's name. Use up to 40 letters, digits, dots, hyphens and underscores, "
                "beginning with a letter or a digit, e.g. --raters ann,ben,cy."
            )
    if len({name.lower() for name in names}) < len(names):
        raise UsageError("Two raters have the same name. Give every rater a name of their own with --raters.")
    return names


def assign(samples: Sequence[str], raters: Sequence[str], per_item: int, seed: int) -> dict[str, list[str]]:
    """Give every question to `per_item` raters, so that all raters get about the same number.

    Whole questions are given, with the answers of all arms: arms are then compared by the same people.
    """
    if not 1 <= per_item <= len(raters):
        raise UsageError(f"There are {len(raters)} raters; choose --per-item 1 to {len(raters)}, not {per_item}.")
    order = list(samples)
    drawn = random.Random(f"{seed}/plan")
    drawn.shuffle(order)
    plan: dict[str, list[str]] = {rater: [] for rater in raters}
    for sample in order:
        # Ties are broken at random, so that different people meet on different questions.
        for rater in sorted(raters, key=lambda name: (len(plan[name]), drawn.random()))[:per_item]:
            plan[rater].append(sample)
    return plan


def planned(key: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the ids of the answers that each rater gets; all of them, unless the key has a plan."""
    everything = list(key["items"])
    plan: Mapping[str, list[str]] = key.get("plan") or {}
    return {rater: list(plan.get(rater, everything)) for rater in key["raters"]}
