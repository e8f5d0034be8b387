"""The debate's options, checked before any call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.errors import PlanError
from evenhand.types import SampleKind

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "rounds": (1, 20),
    "temperature": (0, 2),
    "max_tokens": (16, 100_000),
    "referee_tokens": (0, 100_000),
}
_FRACTIONS = ("temperature",)


def check_options(kind: SampleKind, options: Mapping[str, Any]) -> None:
    """Refuses options that make no sense."""
    del kind
    for name, (least, most) in _BOUNDS.items():
        value = options[name]
        number = isinstance(value, int) or (isinstance(value, float) and name in _FRACTIONS)
        if not number or isinstance(value, bool) or not least <= value <= most:
            what = "a number" if name in _FRACTIONS else "a whole number"
            raise PlanError(f"The debate's option {name} is {what} from {least:g} to {most:g}, not {value!r}.")
