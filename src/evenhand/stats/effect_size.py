"""Standardised effect sizes."""

import numpy as np
from numpy.typing import ArrayLike

from evenhand.stats._checks import finite_array


def paired_dz(differences: ArrayLike) -> float | None:
    """Return Cohen's dz, the mean difference in standard deviations; undefined for constant differences."""
    array = finite_array("differences", differences, 1)
    # A constant is detected by equal values: centring it may leave rounding noise.
    if array.size < 2 or np.ptp(array) == 0:
        return None
    return float(array.mean() / array.std(ddof=1))
