"""Chart axes: linear scales with round ticks that cover all values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from evenhand.core.format import finite

_ROUND_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear scale from the first tick to the last."""

    ticks: tuple[float, ...]
    digits: int
    reference: float | None = None
    """A value to mark, such as chance level; None if it is outside the axis."""

    @property
    def low(self) -> float:
        return self.ticks[0]

    @property
    def high(self) -> float:
        return self.ticks[-1]

    def fraction(self, value: float) -> float:
        """Return the position of the value: 0 at the low end, 1 at the high end."""
        return (value - self.low) / (self.high - self.low)


def axis_for(
    values: Iterable[float | None], *, include_zero: bool = False, steps: int = 5, reference: float | None = None
) -> Axis:
    """Return an axis that covers all finite values with about `steps` round steps."""
    usable = [v for v in map(finite, values) if v is not None]
    if include_zero or not usable:
        usable.append(0.0)
    low, high = min(usable), max(usable)
    if high - low <= 1e-9 * abs(high):
        margin = max(1.0, abs(high) / 10)
        low, high = low - margin, high + margin
    step = _round_step((high - low) / steps)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = next((d for d in range(9) if math.isclose(round(step, d), step)), 9)
    ticks = tuple(k * step for k in range(first, last + 1))
    on_axis = reference is not None and ticks[0] <= reference <= ticks[-1]
    return Axis(ticks, digits, reference if on_axis else None)


def _round_step(raw: float) -> float:
    size = 10.0 ** math.floor(math.log10(raw))
    return next(m for m in _ROUND_STEPS if m * size >= raw * (1 - 1e-9)) * size
