"""The debate's options, checked before any call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.methods.base import check_numbers
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
    check_numbers("The debate's", options, _BOUNDS, _FRACTIONS)
