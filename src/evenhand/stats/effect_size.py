"""How large a difference is, in units of its own spread."""

import numpy as np
from numpy.typing import ArrayLike

from evenhand.stats._checks import finite_array


def paired_dz(differences: ArrayLike) -> float | None:
    """Cohen's dz: the mean difference in standard deviations; undefined where the differences never vary."""
    array = finite_array("differences", differences, 1)
    # Equality of all values is the test of no variation: centring a constant may leave rounding noise.
    if array.size < 2 or np.ptp(array) == 0:
        return None
    return float(array.mean() / array.std(ddof=1))
