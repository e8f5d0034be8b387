import numpy as np
import pytest
from scipy import stats as scipy_stats

from evenhand.stats.paired import paired_dz


def test_dz_is_the_t_statistic_without_the_sample_size():
    differences = np.random.default_rng(1).normal(0.4, 1.3, 50)

    t = scipy_stats.ttest_1samp(differences, 0).statistic

    assert paired_dz(differences) == pytest.approx(t / np.sqrt(50))


@pytest.mark.parametrize("differences", [[], [0.3], [0.1, 0.1, 0.1], [0.0, 0.0]])
def test_dz_of_differences_that_never_vary_is_undefined(differences: list[float]):
    assert paired_dz(differences) is None


def test_dz_refuses_what_is_not_a_number():
    with pytest.raises(ValueError, match="finite"):
        paired_dz([1.0, float("nan")])
