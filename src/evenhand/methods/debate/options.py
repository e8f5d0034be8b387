"""The debate's options, checked before any call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.errors import PlanError
from evenhand.methods.base import check_numbers
from evenhand.types import SampleKind

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "rounds": (1, 20),
    "answers": (2, 26),
    "temperature": (0, 2),
    "max_tokens": (16, 100_000),
    "referee_tokens": (0, 100_000),
}
_FRACTIONS = ("temperature",)
SCORINGS = ("numbers", "odds")
"""A number from 0 to 10 that the referee writes, or how likely it says that a statement is prejudiced."""


def check_options(kind: SampleKind, options: Mapping[str, Any]) -> None:
    """Refuses options that make no sense."""
    del kind
    check_numbers("The debate's", options, _BOUNDS, _FRACTIONS)
    if "answers" in options and options.get("temperature") == 0:
        raise PlanError("At the temperature 0 all answers are the same one; RLAIF needs different ones to prefer from.")
    if options.get("scoring", SCORINGS[0]) not in SCORINGS:
        raise PlanError(f"The debate's option scoring is {' or '.join(SCORINGS)}, not {options['scoring']!r}.")
