"""The chi-square test of independence for a table of counts, with Cramér's V as the effect size."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evenhand.stats._checks import count_array
from evenhand.stats.distributions import chi_square_sf


class Contingency(NamedTuple):
    """A chi-square test of independence with its effect size; None means undefined (one row or column)."""

    statistic: float | None
    df: int
    p_value: float | None
    cramers_v: float | None
    """0 means no association, 1 a complete one."""
    n: int


def chi_square_table(counts: ArrayLike) -> Contingency:
    """Run Pearson's test of "rows and columns are independent"; empty rows and columns are ignored."""
    table = count_array("counts", counts, 2)
    table = table[table.any(axis=1)][:, table.any(axis=0)]
    n = int(table.sum())
    smaller = min(table.shape) - 1
    if smaller < 1:
        return Contingency(None, 0, None, None, n)
    df = (table.shape[0] - 1) * (table.shape[1] - 1)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / n
    statistic = float((np.square(table - expected) / expected).sum())
    # Rounding may put a complete association slightly above 1.
    cramers_v = min(1.0, math.sqrt(statistic / (n * smaller)))
    return Contingency(statistic, df, chi_square_sf(statistic, df), cramers_v, n)
