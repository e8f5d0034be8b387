"""The smallest effect that a study of a given size detects, and the size that an effect or an interval needs.

By the normal approximation; all tests are two-sided.
"""

import math
from statistics import NormalDist

from evenhand.stats.distributions import check_at_least, check_fraction, student_t_quantile


def mde_from_standard_error(
    standard_error: float, *, alpha: float = 0.05, power: float = 0.8, df: float | None = None
) -> float:
    """Return the smallest detectable effect of an estimate with a known standard error, e.g. from a jackknife.

    With `df`, the standard error is itself an estimate. The test then uses Student's t, whose critical value varies as
    the error does, by t/√(2 df). The error is divided by its median for a true error of 1, since it is more often too
    small than too large. Both use the usual normal approximations of chi.
    """
    check_at_least("standard_error", standard_error, 0)
    z_alpha, z_power = _quantiles(alpha, power)
    if df is None:
        return (z_alpha + z_power) * standard_error
    t_alpha = student_t_quantile(1 - alpha / 2, df)
    median = max(0.0, 1 - 2 / (9 * df)) ** 1.5
    return (t_alpha + z_power * math.sqrt(1 + t_alpha**2 / (2 * df))) * standard_error / median


def size_for_difference(effect: float, spread: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return how many independent values each of two runs needs to detect a difference of `effect` of their means.

    `spread` is the standard deviation of a value; that of a share is at most 0.5.
    """
    if effect <= 0:
        raise ValueError(f"effect must be above 0, not {effect}.")
    z_alpha, z_power = _quantiles(alpha, power)
    return math.ceil(2 * ((z_alpha + z_power) * spread / effect) ** 2)


def size_for_half_width(n: int, half_width: float, wanted: float) -> int:
    """Return how many independent values an interval of ± `wanted` needs, if n of them gave ± `half_width`.

    The half-width is t·s/√n, so that it shrinks a little faster than 1/√n. The spread s is that of the n values; it is
    itself an estimate, and so is the result.
    """
    check_at_least("n", n, 2)
    check_at_least("half_width", half_width, 0)
    if wanted <= 0:
        raise ValueError(f"wanted must be above 0, not {wanted}.")

    def factor(size: int) -> float:
        return student_t_quantile(0.975, size - 1) / math.sqrt(size)

    target = factor(n) * wanted / half_width if half_width else math.inf
    low, high = 1, n  # the smallest size that reaches the target is above `low`, and at most `high`
    while factor(high) > target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if factor(middle) > target else (low, middle)
    return high


def _quantiles(alpha: float, power: float) -> tuple[float, float]:
    check_fraction("alpha", alpha)
    if not 0.5 <= power < 1:
        raise ValueError(f"power must lie between 0.5 and 1 (excluded), not {power}.")
    return NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(power)
