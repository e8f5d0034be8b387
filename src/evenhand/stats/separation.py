"""How well a score separates two kinds of things: the area under the ROC curve, with an interval."""

import math
from collections.abc import Sequence

from evenhand.stats.intervals import Interval

_Z = 1.959963984540054
_STEPS = 60


def auc(high: Sequence[float], low: Sequence[float]) -> float | None:
    """Return the probability that a value of `high` is above one of `low`; ties count half, None without values."""
    if not high or not low:
        return None
    wins = sum((a > b) + 0.5 * (a == b) for a in high for b in low)
    return wins / (len(high) * len(low))


def auc_interval(high: Sequence[float], low: Sequence[float]) -> Interval:
    """Return the AUC with its 95 % interval by Newcombe's score method, which holds for few values and for 0 and 1."""
    area, n = auc(high, low), len(high) + len(low)
    if area is None:
        return Interval(None, None, None, n)
    size = (len(high), len(low))
    return Interval(area, _limit(area, size, -1), _limit(area, size, 1), n)


def _limit(area: float, size: tuple[int, int], side: int) -> float:
    """Find the area furthest from the observed one, on one side, that would not be rejected."""
    near, far = area, 0.0 if side < 0 else 1.0
    for _ in range(_STEPS):
        middle = (near + far) / 2
        if abs(area - middle) <= _Z * math.sqrt(_variance(middle, size)):
            near = middle
        else:
            far = middle
    return near


def _variance(area: float, size: tuple[int, int]) -> float:
    """Return Hanley and McNeil's variance, with the mean of both sizes in place of each (Newcombe 2006, method 5)."""
    m, n = size
    others = (m + n) / 2 - 1
    return area * (1 - area) * (1 + others * ((1 - area) / (2 - area) + area / (1 + area))) / (m * n)
