"""The minimum detectable effect (MDE) of a study of a given size, by the normal approximation.

All tests are two-sided; None means that no possible effect would be detected with that power.
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from evenhand.stats.distributions import check_at_least, check_fraction, check_share, count_array, student_t_quantile


def mde_share(
    n: int, share: float, *, alpha: float = 0.05, power: float = 0.8, design_effect: float = 1.0
) -> float | None:
    """Return the smallest detectable absolute change of a share from a fixed value.

    The change is taken towards 0.5, where the variance grows: the harder of the two directions.
    """
    check_share("share", share)
    near = min(share, 1 - share)
    return _smallest_detectable(
        _effective_size(n, design_effect), (near * (1 - near), 1 - 2 * near), 1 - near, alpha, power
    )


def mde_paired_share(
    n: int, discordant_share: float, *, alpha: float = 0.05, power: float = 0.8, design_effect: float = 1.0
) -> float | None:
    """Return the smallest detectable difference of two shares on the same n items (Connor's formula for McNemar).

    discordant_share is the share of items on which the two disagree; the difference cannot exceed it.
    """
    check_share("discordant_share", discordant_share)
    return _smallest_detectable(
        _effective_size(n, design_effect), (discordant_share, 0.0), discordant_share, alpha, power
    )


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


def design_effect(cluster_sizes: ArrayLike, intraclass_correlation: float) -> float:
    """Return Kish's design effect: the factor by which clustering inflates the variance of a mean."""
    check_share("intraclass_correlation", intraclass_correlation)
    sizes = count_array("cluster_sizes", cluster_sizes, 1)
    if not sizes.any():
        raise ValueError("cluster_sizes must contain at least one item.")
    return 1 + (float(np.square(sizes).sum() / sizes.sum()) - 1) * intraclass_correlation


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


def _effective_size(n: int, design_effect: float) -> float:
    check_at_least("n", n, 0)
    if not 0 < design_effect < math.inf:
        raise ValueError(f"design_effect must be a finite number above 0, not {design_effect}.")
    return n / design_effect


def _quantiles(alpha: float, power: float) -> tuple[float, float]:
    check_fraction("alpha", alpha)
    if not 0.5 <= power < 1:
        raise ValueError(f"power must lie between 0.5 and 1 (excluded), not {power}.")
    return NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(power)


def _smallest_detectable(
    size: float, variance: tuple[float, float], largest: float, alpha: float, power: float
) -> float | None:
    """Solve d·√size = z_alpha·√v(0) + z_power·√v(d) for d, where v(d) = c0 + c1·d - d²."""
    z_alpha, z_power = _quantiles(alpha, power)
    c0, c1 = variance
    root_size = math.sqrt(size)
    critical = z_alpha * math.sqrt(c0)
    if size == 0 or critical > largest * root_size:
        return None
    # Squaring gives a quadratic; only its larger root exceeds the critical value of the test. The
    # discriminant is expanded, since at a power of 0.5 rounding could make its exact 0 negative.
    b = 2 * critical * root_size + z_power**2 * c1
    discriminant = (critical * c1 + c0 * root_size) * root_size - critical**2 + z_power**2 * (c1**2 / 4 + c0)
    effect = (b / 2 + z_power * math.sqrt(max(0.0, discriminant))) / (size + z_power**2)
    return effect if 0 < effect <= largest else None
