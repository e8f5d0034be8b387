"""Platt scaling: the logistic curve that turns a rating into a probability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import pstdev

_EDGE = 0.002
"""Ratings nearer to 0 or 1 count as this near: they say "surely", not how surely."""
_RIDGE = 0.1
_STEPS = 100


def platt(high: Sequence[float], low: Sequence[float]) -> tuple[float, float]:
    """Return slope and intercept of P(high) over the log-odds of a rating in 0–1; both kinds count alike.

    The targets are Platt's, a little inside 0 and 1, and the slope is held by a small penalty, so that ratings that
    part the kinds perfectly give a finite curve.
    """
    if not high or not low:
        raise ValueError("both kinds need ratings")
    odds = [log_odds(x) for x in (*high, *low)]
    scale = pstdev(odds)
    if scale == 0:
        return 0.0, 0.0
    least, count = min(len(high), len(low)), len(odds)
    target = (least + 1) / (least + 2)
    points = [
        *((x / scale, target, 0.5 / len(high)) for x in odds[: len(high)]),
        *((x / scale, 1 - target, 0.5 / len(low)) for x in odds[len(high) :]),
    ]
    slope = intercept = 0.0
    for _ in range(_STEPS):
        g0 = g1 = h00 = h01 = h11 = 0.0
        for x, target, weight in points:
            chance = sigmoid(slope * x + intercept)
            miss, spread = weight * (target - chance), weight * max(chance * (1 - chance), 1e-6)
            g0, g1 = g0 + miss, g1 + miss * x
            h00, h01, h11 = h00 + spread, h01 + spread * x, h11 + spread * x * x
        g1, h11 = g1 - _RIDGE * slope / count, h11 + _RIDGE / count
        size = h00 * h11 - h01 * h01
        by_intercept, by_slope = (g0 * h11 - g1 * h01) / size, (g1 * h00 - g0 * h01) / size
        # Steps are bounded: far from the optimum the curve is flat and Newton's step overshoots.
        slope, intercept = slope + max(-1.0, min(1.0, by_slope)), intercept + max(-1.0, min(1.0, by_intercept))
        if abs(by_slope) + abs(by_intercept) < 1e-9:
            break
    return slope / scale, intercept


def log_odds(rating: float) -> float:
    inside = min(max(rating, _EDGE), 1 - _EDGE)
    return math.log(inside / (1 - inside))


def sigmoid(odds: float) -> float:
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, odds))))
