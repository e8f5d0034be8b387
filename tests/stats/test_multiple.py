from collections.abc import Callable

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from evenhand.stats import benjamini_hochberg, holm

Correction = Callable[[list[float | None]], list[float | None]]
BOTH = pytest.mark.parametrize(("correct", "method"), [(holm, "holm"), (benjamini_hochberg, "fdr_bh")])


@BOTH
@pytest.mark.parametrize("size", [1, 2, 50])
def test_equals_statsmodels(correct: Correction, method: str, size: int):
    p_values = list(np.random.default_rng(size).beta(0.4, 2, size))

    assert correct(p_values) == pytest.approx(multipletests(p_values, method=method)[1])


@BOTH
def test_ties_and_edges_equal_statsmodels(correct: Correction, method: str):
    p_values = [0.02, 1.0, 0.02, 0.0, 0.5, 0.5]

    assert correct(p_values) == pytest.approx(multipletests(p_values, method=method)[1])


def test_by_hand():
    p_values = [0.04, 0.01, 0.03]

    assert holm(p_values) == pytest.approx([0.06, 0.03, 0.06])
    assert benjamini_hochberg(p_values) == pytest.approx([0.04, 0.03, 0.04])


@BOTH
def test_undefined_tests_keep_their_place_and_do_not_enlarge_the_family(correct: Correction, method: str):
    with_gaps = correct([None, 0.04, None, 0.01, 0.03, None])

    first, second, third = correct([0.04, 0.01, 0.03])
    assert with_gaps == [None, first, None, second, third, None]


@BOTH
def test_a_family_without_tests(correct: Correction, method: str):
    assert correct([]) == []
    assert correct([None, None]) == [None, None]


@BOTH
@pytest.mark.parametrize("bad", [float("nan"), -0.01, 1.01])
def test_an_impossible_p_value_is_refused(correct: Correction, method: str, bad: float):
    with pytest.raises(ValueError, match="p-value must lie between 0 and 1"):
        correct([0.5, bad])
