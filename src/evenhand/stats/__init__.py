"""Pure statistics on numbers and arrays: clustered intervals, paired tests, agreement, power.

An undefined result is None, never 0; bad input raises ValueError.
"""

from evenhand.stats.agreement import (
    Level,
    ScoreAgreement,
    auc,
    auc_interval,
    cohen_interval,
    cohen_kappa,
    fleiss_interval,
    fleiss_kappa,
    krippendorff_alpha,
    score_agreement,
    spearman,
    spearman_interval,
)
from evenhand.stats.corrected import Corrected, corrected_mean, rogan_gladen
from evenhand.stats.distributions import (
    ChiSquare,
    chi_square_sf,
    chi_square_uniform,
    student_t_p,
    student_t_quantile,
    total_variation_from_uniform,
)
from evenhand.stats.intervals import (
    FEW_CLUSTERS,
    Bounds,
    Interval,
    Jackknife,
    Statistic,
    bounded_mean_interval,
    cluster_jackknife,
    mean_interval,
    paired_cluster_jackknife,
    ratio,
    share_interval,
    wilson,
)
from evenhand.stats.paired import (
    benjamini_hochberg,
    holm,
    least_swap_p,
    mcnemar_exact,
    permutation_test_paired,
    swap_test,
)
from evenhand.stats.power import (
    mde_from_standard_error,
    size_for_difference,
    size_for_half_width,
)
from evenhand.stats.ratios import RatioTest, lowest_ratio, lowest_ratio_interval
from evenhand.stats.sequential import MeanSequence

__all__ = [
    "FEW_CLUSTERS",
    "Bounds",
    "ChiSquare",
    "Corrected",
    "Interval",
    "Jackknife",
    "Level",
    "MeanSequence",
    "RatioTest",
    "ScoreAgreement",
    "Statistic",
    "auc",
    "auc_interval",
    "benjamini_hochberg",
    "bounded_mean_interval",
    "chi_square_sf",
    "chi_square_uniform",
    "cluster_jackknife",
    "cohen_interval",
    "cohen_kappa",
    "corrected_mean",
    "fleiss_interval",
    "fleiss_kappa",
    "holm",
    "krippendorff_alpha",
    "least_swap_p",
    "lowest_ratio",
    "lowest_ratio_interval",
    "mcnemar_exact",
    "mde_from_standard_error",
    "mean_interval",
    "paired_cluster_jackknife",
    "permutation_test_paired",
    "ratio",
    "rogan_gladen",
    "score_agreement",
    "share_interval",
    "size_for_difference",
    "size_for_half_width",
    "spearman",
    "spearman_interval",
    "student_t_p",
    "student_t_quantile",
    "swap_test",
    "total_variation_from_uniform",
    "wilson",
]
