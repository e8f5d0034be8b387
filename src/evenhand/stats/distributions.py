"""Chi-square, F and Student t probabilities in plain Python, chi-square tests of counts, and checks of all inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable
from statistics import NormalDist
from typing import NamedTuple

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


_TINY = 1e-300
_PRECISION = 1e-15


class ChiSquare(NamedTuple):
    """A chi-square test; None means undefined (all counts are 0)."""

    statistic: float | None
    df: int
    p_value: float | None


def chi_square_sf(x: float, df: float) -> float:
    """Return the probability that a chi-square variable with df degrees of freedom exceeds x."""
    check_at_least("x", x, 0)
    _check_df(df)
    a, half = df / 2, x / 2
    if half == 0:
        return 1.0
    scale = math.exp(a * math.log(half) - half - math.lgamma(a))
    # Each expansion converges fast, and without cancellation, on its own side of the mean.
    if half < a + 1:
        return 1 - scale * _lower_gamma_series(a, half)
    return scale * _upper_gamma_fraction(a, half)


def chi_square_uniform(counts: ArrayLike, expected: ArrayLike | None = None) -> ChiSquare:
    """Run Pearson's test of "all categories are equally likely", or of the expected counts."""
    array = _category_counts(counts)
    df = array.size - 1
    if not array.any():
        return ChiSquare(None, df, None)
    chance = array.mean() if expected is None else np.asarray(expected, dtype=np.float64)
    statistic = float((np.square(array - chance) / chance).sum())
    return ChiSquare(statistic, df, chi_square_sf(statistic, df))


def total_variation_from_uniform(counts: ArrayLike, expected: ArrayLike | None = None) -> float | None:
    """Return the distance from uniform, or from the expected counts: 0 is uniform, 1 - 1/k is a single category."""
    array = _category_counts(counts)
    total = float(array.sum())
    if not total:
        return None
    chance = 1 / array.size if expected is None else np.asarray(expected, dtype=np.float64) / total
    return float(np.abs(array / total - chance).sum()) / 2


def student_t_quantile(p: float, df: float) -> float:
    """Return the p-quantile of the Student t distribution with df degrees of freedom."""
    check_fraction("p", p)
    _check_df(df)
    tail = min(p, 1 - p)
    # The tail is convex and heavier than the normal one, so Newton's method started at the normal quantile
    # approaches the root from below; the loop ends when rounding stops the progress.
    t = -NormalDist().inv_cdf(tail)
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    while t > 0:
        density = math.exp(log_scale - (df + 1) / 2 * math.log1p(t * t / df))
        step = (_student_t_tail(t, df) - tail) / density
        if step <= t * _PRECISION:
            break
        t += step
    return t if p > 0.5 else -t


def student_t_p(t: float, df: float) -> float:
    """Return the two-sided p-value of a Student t statistic with df degrees of freedom."""
    _check_df(df)
    return 2 * _student_t_tail(abs(t), df) if t else 1.0


def f_sf(x: float, df: float, df_below: float) -> float:
    """Return the probability that an F variable exceeds x; df is of its numerator, df_below of its denominator."""
    check_at_least("x", x, 0)
    _check_df(df)
    _check_df(df_below)
    total = df_below + df * x
    return _beta_cdf(df_below / total, df * x / total, df_below / 2, df / 2) if x else 1.0


def binomial_sf(successes: int, n: int, chance: float) -> float:
    """Return the probability of so many successes or more in n trials, each with this chance."""
    check_share("chance", chance)
    if not successes or not chance:
        return float(not successes)
    failures = n - successes + 1
    return f_sf(successes * (1 - chance) / (chance * failures), 2 * failures, 2 * successes)


def _check_df(df: float) -> None:
    if not 0 < df < math.inf:
        raise ValueError(f"df must be a finite number above 0, not {df}.")


def _category_counts(counts: ArrayLike) -> NDArray[np.float64]:
    array = count_array("counts", counts, 1)
    if array.size < 2:
        raise ValueError(f"counts must have at least 2 categories, not {array.size}.")
    return array


def _lower_gamma_series(a: float, x: float) -> float:
    """Return the series of the lower incomplete gamma function, without its scale factor."""
    term = total = 1 / a
    for n in itertools.count(1):
        term *= x / (a + n)
        total += term
        if term < total * _PRECISION:
            break
    return total


def _upper_gamma_fraction(a: float, x: float) -> float:
    """Return the continued fraction of the upper incomplete gamma function, without its scale factor."""
    terms = ((-n * (n - a), x + 2 * n + 1 - a) for n in itertools.count(1))
    return 1 / _continued_fraction(x + 1 - a, terms)


def _student_t_tail(t: float, df: float) -> float:
    """Return the probability that a Student t variable exceeds a positive t."""
    return _beta_cdf(df / (df + t * t), t * t / (df + t * t), df / 2, 0.5) / 2


def _beta_cdf(x: float, y: float, a: float, b: float) -> float:
    """Return the probability that a beta variable is below x = 1 - y."""
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    scale = math.exp(a * math.log(x) + b * math.log(y) - log_beta)
    # The fraction converges fast only below the mean of the beta distribution; above it, use the complement.
    if x < (a + 1) / (a + b + 2):
        return scale / (a * _beta_fraction(x, a, b))
    return 1 - scale / (b * _beta_fraction(y, b, a))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, without its scale factor."""
    odd = (-(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)) for m in itertools.count(0))
    even = (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)) for m in itertools.count(1))
    return _continued_fraction(1.0, ((term, 1.0) for pair in zip(odd, even, strict=True) for term in pair))


def _continued_fraction(start: float, terms: Iterable[tuple[float, float]]) -> float:
    """Return start + a1/(b1 + a2/(b2 + …)) by Lentz's method, from the infinite terms (a, b)."""
    value = c = start or _TINY
    d = 0.0
    for a, b in terms:
        # A zero denominator is replaced by a tiny one; the next step cancels its effect.
        d = 1 / (b + a * d or _TINY)
        c = b + a / c or _TINY
        value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return value


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
