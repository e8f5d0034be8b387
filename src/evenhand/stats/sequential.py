"""Confidence sequences: intervals of a mean that hold at all times at once, so that one may look after every value.

The predictable plug-in empirical Bernstein sequence of Waudby-Smith and Ramdas (2024), Theorem 2, for values in [0, 1].
It assumes no distribution; values may be dependent as long as each has the same mean given those before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from evenhand.stats.intervals import Bounds, Interval

_LARGEST_BET = 0.5


@dataclass(frozen=True, slots=True)
class MeanSequence:
    """What the values so far say about their mean; `added` returns the state after one more.

    `alpha` is the probability that the interval ever leaves out the mean; it is fixed before the first value.
    """

    alpha: float = 0.05
    bounds: Bounds = (0.0, 1.0)
    n: int = 0
    total: float = 0.0
    squares: float = 0.25
    """The sum of squared deviations from the running means, with a prior of one half."""
    bets: float = 0.0
    weighted: float = 0.0
    penalty: float = 0.0
    low: float = 0.0
    high: float = 1.0
    """The intersection of all intervals so far, in [0, 1]."""

    def added(self, value: float) -> MeanSequence:
        """Return the state with one more value; raise ValueError if it is out of bounds."""
        least, most = self.bounds
        if not least <= value <= most:
            raise ValueError(f"{value} is not between {least} and {most}")
        x = (value - least) / (most - least)
        n = self.n + 1
        before = (0.5 + self.total) / n
        variance = self.squares / n
        bet = min(_LARGEST_BET, math.sqrt(2 * math.log(2 / self.alpha) / (variance * n * math.log(1 + n))))
        bets, weighted = self.bets + bet, self.weighted + bet * x
        penalty = self.penalty + (x - before) ** 2 * (-math.log(1 - bet) - bet)
        half = (math.log(2 / self.alpha) + penalty) / bets
        total = self.total + x
        after = (0.5 + total) / (n + 1)
        return MeanSequence(
            self.alpha,
            self.bounds,
            n,
            total,
            self.squares + (x - after) ** 2,
            bets,
            weighted,
            penalty,
            max(self.low, weighted / bets - half),
            min(self.high, weighted / bets + half),
        )

    @property
    def interval(self) -> Interval | None:
        """The mean so far, and the interval that holds at all times; None before the first value."""
        if not self.n:
            return None
        least, most = self.bounds
        width = most - least
        # Where values drift, an intersection can be empty: then none of the means that were possible is left.
        low, high = min(self.low, self.high), max(self.low, self.high)
        return Interval(least + width * self.total / self.n, least + width * low, least + width * high, self.n)

    def excludes(self, value: float) -> bool:
        """Return whether a mean of `value` is ruled out."""
        least, most = self.bounds
        x = (value - least) / (most - least)
        return self.n > 0 and not self.low <= x <= self.high
