"""Input checks shared by the stats modules; each raises ValueError with one clear sentence."""

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray


def check_fraction(name: str, value: float) -> None:
    """Raise ValueError unless a level, such as a confidence, is strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, not {value}.")


def check_share(name: str, value: float) -> None:
    """Raise ValueError unless a share is between 0 and 1, inclusive."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, not {value}.")


def check_at_least(name: str, value: float, minimum: float) -> None:
    """Raise ValueError for a number that is below its minimum, infinite or NaN."""
    if not minimum <= value < float("inf"):
        raise ValueError(f"{name} must be a finite number of at least {minimum}, not {value}.")


def finite_array(name: str, values: ArrayLike, dimensions: int) -> NDArray[np.float64]:
    """Return the values as a float array after checking its dimensions and that all values are finite."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimension(s), not {array.ndim}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must contain finite numbers only.")
    return array


def count_array(name: str, counts: ArrayLike, dimensions: int) -> NDArray[np.float64]:
    """Return the counts as a float array after checking its dimensions and that all are whole and non-negative."""
    array = finite_array(name, counts, dimensions)
    if (array < 0).any() or (array != np.floor(array)).any():
        raise ValueError(f"{name} must contain whole numbers of at least 0.")
    return array


def cluster_sums(values: NDArray[np.float64], clusters: Iterable[Hashable] | None) -> NDArray[np.float64]:
    """Return the sum of the values in each cluster; without clusters, every value is its own cluster."""
    if clusters is None:
        return values
    seen: dict[Hashable, int] = {}
    codes = np.asarray([seen.setdefault(label, len(seen)) for label in clusters], dtype=np.intp)
    if codes.size != values.size:
        raise ValueError(f"There must be one cluster per value, not {codes.size} for {values.size} values.")
    return np.bincount(codes, weights=values, minlength=len(seen)).astype(np.float64)
