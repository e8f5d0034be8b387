"""Pure statistics on numbers and arrays: intervals, clustered bootstrap, paired tests, agreement, power.

An undefined result is None, never 0; bad input raises ValueError.
"""

from evenhand.stats.agreement import cohen_kappa, fleiss_kappa, pearson, spearman
from evenhand.stats.bootstrap import Bootstrap, Statistic, cluster_bootstrap, paired_cluster_bootstrap
from evenhand.stats.distributions import (
    ChiSquare,
    chi_square_sf,
    chi_square_uniform,
    student_t_quantile,
    total_variation_from_uniform,
)
from evenhand.stats.intervals import Bounds, Interval, bounded_mean_interval, mean_interval, share_interval, wilson
from evenhand.stats.multiple import benjamini_hochberg, holm
from evenhand.stats.paired import mcnemar_exact, permutation_test_paired
from evenhand.stats.power import design_effect, mde_from_standard_error, mde_paired_share, mde_share

__all__ = [
    "Bootstrap",
    "Bounds",
    "ChiSquare",
    "Interval",
    "Statistic",
    "benjamini_hochberg",
    "bounded_mean_interval",
    "chi_square_sf",
    "chi_square_uniform",
    "cluster_bootstrap",
    "cohen_kappa",
    "design_effect",
    "fleiss_kappa",
    "holm",
    "mcnemar_exact",
    "mde_from_standard_error",
    "mde_paired_share",
    "mde_share",
    "mean_interval",
    "paired_cluster_bootstrap",
    "pearson",
    "permutation_test_paired",
    "share_interval",
    "spearman",
    "student_t_quantile",
    "total_variation_from_uniform",
    "wilson",
]
