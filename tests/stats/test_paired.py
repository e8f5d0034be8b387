import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.contingency_tables import mcnemar

from evenhand.stats import least_swap_p, mcnemar_exact, paired, permutation_test_paired, swap_test


@pytest.mark.parametrize(
    ("first", "second"), [(1, 0), (0, 6), (5, 5), (3, 11), (11, 3), (40, 61), (0, 900), (480, 520)]
)
def test_mcnemar_equals_statsmodels(first: int, second: int):
    expected = mcnemar([[10, first], [second, 10]], exact=True).pvalue

    assert mcnemar_exact(first, second) == pytest.approx(min(1.0, expected), rel=1e-9)


@pytest.mark.parametrize(("first", "second"), [(29_800, 30_200), (30_000, 30_000), (28_000, 30_000)])
def test_mcnemar_stays_exact_for_large_counts(first: int, second: int):
    expected = scipy_stats.binomtest(first, first + second).pvalue

    assert mcnemar_exact(first, second) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_by_hand():
    assert mcnemar_exact(0, 3) == 0.25
    assert mcnemar_exact(1, 4) == pytest.approx(2 * (1 + 5) / 32)
    assert mcnemar_exact(0, 0) == 1.0


def test_mcnemar_refuses_negative_counts():
    with pytest.raises(ValueError, match="only_first"):
        mcnemar_exact(-1, 2)
    with pytest.raises(ValueError, match="only_second"):
        mcnemar_exact(2, -1)


def scipy_sign_flip(differences: np.ndarray, resamples: float) -> float:
    result = scipy_stats.permutation_test(
        (differences, np.zeros_like(differences)),
        lambda x, y, axis: (x - y).mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        rng=np.random.default_rng(0),
    )
    return result.pvalue


def test_few_differences_are_tested_exactly():
    differences = np.random.default_rng(1).normal(0.5, 1, 9)

    assert permutation_test_paired(differences) == pytest.approx(scipy_sign_flip(differences, np.inf))


def test_many_differences_are_tested_by_resampling():
    differences = np.random.default_rng(2).normal(0.25, 1, 40)

    p = permutation_test_paired(differences, resamples=20_000)

    assert p == pytest.approx(scipy_sign_flip(differences, 20_000), abs=0.015)


def test_all_differences_of_one_sign_by_hand():
    # Only the two patterns "all plus" and "all minus" of 2**5 are as extreme.
    assert permutation_test_paired([1.0, 2.0, 0.5, 3.0, 1.0]) == 2 / 32


def test_ties_that_rounding_breaks_count_as_extreme():
    # The same differences in tenths, where every sum is exact; the second ones sum to 0.
    for tenths in ([-8, -9, -6, 6, 3, 8], [1, 2, -3, 4, -7, 3]):
        exact = permutation_test_paired(tenths)

        assert permutation_test_paired([value / 10 for value in tenths]) == exact


def test_clusters_are_flipped_as_a_whole():
    differences = np.array([1.0, 2.0, 0.5, 3.0, 1.0])

    assert permutation_test_paired(differences, ["a", "a", "b", "b", "b"]) == 2 / 4
    assert permutation_test_paired(differences, ["a"] * 5) == 1.0


def test_clustered_flips_hold_their_level_where_plain_flips_do_not():
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(25), 6)
    plain = clustered = 0

    for seed in range(200):
        differences = rng.normal(0, 1, 25)[clusters] + rng.normal(0, 0.5, clusters.size)
        plain += permutation_test_paired(differences, None, 300, seed) < 0.05
        clustered += permutation_test_paired(differences, clusters, 300, seed) < 0.05

    assert clustered / 200 <= 0.10
    assert plain / 200 > 0.2


def test_no_difference_anywhere_gives_one():
    assert permutation_test_paired(np.zeros(50)) == 1.0


def test_a_resampled_p_value_is_never_zero():
    assert permutation_test_paired(np.ones(60), resamples=99) == 1 / 100


def test_a_test_of_nothing_is_undefined():
    assert permutation_test_paired([]) is None


def test_same_seed_same_p_value():
    differences = np.random.default_rng(4).normal(0.1, 1, 60)

    first, again, other = (permutation_test_paired(differences, seed=seed) for seed in (5, 5, 6))

    assert first == again != other


def test_the_block_size_does_not_change_the_p_value(monkeypatch: pytest.MonkeyPatch):
    differences = np.random.default_rng(5).normal(0.1, 1, 60)
    whole = permutation_test_paired(differences, resamples=1000)

    monkeypatch.setattr(paired, "_BLOCK_CELLS", 60 * 7)

    assert permutation_test_paired(differences, resamples=1000) == whole


def test_permutation_test_refuses_bad_input():
    with pytest.raises(ValueError, match="one cluster per value"):
        permutation_test_paired([1.0, 2.0], ["a"])
    with pytest.raises(ValueError, match="finite"):
        permutation_test_paired([float("nan")])
    with pytest.raises(ValueError, match="resamples"):
        permutation_test_paired([1.0], resamples=0)


def share(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., 1]


def shares(answers: np.ndarray) -> np.ndarray:
    """One row (successes, trials) per row of answers."""
    return np.stack([answers.sum(axis=1), np.full(len(answers), answers.shape[1])], axis=1)


def test_swapping_single_answers_is_mcnemars_test():
    rng = np.random.default_rng(1)
    before, after = ((rng.random((12, 1)) < chance).astype(float) for chance in (0.3, 0.8))

    p = swap_test(shares(before), shares(after), share)

    assert p == pytest.approx(mcnemar_exact(int((before > after).sum()), int((after > before).sum())))


def test_swaps_of_three_clusters_by_hand():
    # Distances from one half: 0.5 before, 0.0 after. Swapping one or two clusters gives 1/6 in both arms.
    before, after = np.array([[2.0, 2], [2, 2], [2, 2]]), np.array([[1.0, 2], [1, 2], [1, 2]])

    assert swap_test(before, after, lambda sums: np.abs(share(sums) - 0.5)) == 2 / 8


@pytest.mark.parametrize("clusters", [8, 12])
def test_a_swap_test_holds_its_level_with_few_clusters(clusters: int):
    rng = np.random.default_rng(6)
    found = 0

    for seed in range(400):
        own = rng.beta(1, 1, (clusters, 1))
        before, after = (shares((rng.random((clusters, 6)) < own).astype(float)) for _ in range(2))
        found += swap_test(before, after, share, resamples=500, seed=seed) <= 0.05

    assert 0.01 <= found / 400 <= 0.06


@pytest.mark.parametrize(("clusters", "least"), [(2, 0.5), (5, 0.0625), (6, 0.03125), (40, 1 / 100)])
def test_few_clusters_cannot_give_a_small_p_value(clusters: int, least: float):
    before, after = np.tile([1.0, 4.0], (clusters, 1)), np.tile([2.0, 4.0], (clusters, 1))

    assert swap_test(before, after, share, resamples=99) == least_swap_p(clusters, resamples=99) == least


def test_a_swap_that_leaves_nothing_to_compare_counts_as_extreme():
    # The arms have trials in different clusters; every swap of one cluster leaves an arm without any.
    before, after = np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [0.0, 1.0]])

    assert swap_test(before, after, share) == 1.0


def test_an_undefined_difference_has_no_p_value():
    assert swap_test([[0.0, 0.0]], [[1.0, 1.0]], share) is None
