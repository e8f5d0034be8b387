"""What is summed for which cluster, when metrics look at single records and when they look at whole clusters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from evenhand.benchmarks.base import Metric, ratio
from evenhand.core.types import Record
from evenhand.stats import cluster_jackknife
from evenhand.studies.tally import ALL, AT_ONCE, MOST_CLUSTERS, PairTally, Sums, Tally


def scored(record: Record) -> tuple[float, float] | None:
    return None if record.grade is None else (record.grade["score"], 1.0)


def largest(records: Sequence[Record]) -> tuple[float, float] | None:
    scores = [record.grade["score"] for record in records if record.grade]
    return (max(scores), 1.0) if max(scores) >= 0 else None


def any_large(records: Sequence[Record]) -> tuple[float, float]:
    return (float(any(record.grade["score"] >= 5 for record in records if record.grade)), 1.0)


MEAN = Metric("mean", "Mean", scored, ratio)
MAXIMUM = Metric("maximum", "Maximum", scored, ratio, gather=largest)
ANY = Metric("any", "Any", scored, ratio, share=True, gather=any_large)
METRICS = (MEAN, MAXIMUM, ANY)


def record(sample_id: str, score: float | None, group: str = "g") -> Record:
    """A record of the cluster that its id begins with; ungraded without a score."""
    grade = None if score is None else {"score": score}
    return Record(sample_id, sample_id[0], "graded" if grade else "refused", {"group": group}, grade)


def tally(*records: Record) -> Tally:
    made = Tally(METRICS, "group")
    for each in records:
        made.add(each)
    made.finish()
    return made


def pairs(*both: tuple[Record, Record]) -> PairTally:
    made = PairTally(METRICS, "group")
    for before, after in both:
        made.add(before, after)
    made.finish()
    return made


def test_records_are_summed_by_cluster_and_group() -> None:
    made = tally(record("a1", 1), record("a2", 3, "h"), record("b1", None), record("b2", 4))

    assert made.table(("mean", ALL)).tolist() == [[4, 2], [4, 1]]
    assert made.table(("mean", "g")).tolist() == [[1, 1], [4, 1]]
    assert (made.n["mean", ALL], made.n["mean", "h"]) == (3, 1)


def test_a_whole_cluster_is_seen_at_once_and_counts_once() -> None:
    made = tally(record("a1", 1), record("a2", 3), record("b1", 4), record("b2", 2))

    assert made.table(("maximum", ALL)).tolist() == [[3, 1], [4, 1]]
    assert made.table(("maximum", "g")).tolist() == [[3, 1], [4, 1]]
    assert made.n["maximum", ALL] == 2


def test_a_cluster_of_two_groups_counts_in_each_with_its_own_records() -> None:
    made = tally(record("a1", 1), record("a2", 3, "h"))

    assert made.table(("maximum", ALL)).tolist() == [[3, 1]]
    assert made.table(("maximum", "g")).tolist() == [[1, 1]]
    assert made.table(("maximum", "h")).tolist() == [[3, 1]]


def test_records_that_do_not_belong_are_kept_from_the_cluster() -> None:
    made = tally(record("a1", 1), record("a2", None), record("b1", None))

    assert made.table(("maximum", ALL)).tolist() == [[1, 1]]


def test_a_cluster_without_a_value_is_left_out() -> None:
    assert tally(record("a1", -1), record("b1", 2)).table(("maximum", ALL)).tolist() == [[2, 1]]


def test_nothing_is_counted_twice_by_finishing_again() -> None:
    made = tally(record("a1", 1))
    made.finish()

    assert made.n["maximum", ALL] == 1


def test_nothing_at_all_is_no_fault() -> None:
    assert tally().n == {}
    assert pairs().before.n == {}


def test_a_cluster_that_comes_back_is_refused() -> None:
    with pytest.raises(ValueError, match="records of the cluster 'a' are not consecutive"):
        tally(record("a1", 1), record("b1", 1), record("a2", 1))
    with pytest.raises(ValueError, match="records of the cluster 'a' are not consecutive"):
        pairs(*((record(name, 1), record(name, 1)) for name in ("a1", "b1", "a2")))


def test_clusters_may_be_mixed_where_no_metric_needs_them_whole() -> None:
    made = Tally([MEAN], "group")
    for name in ("a1", "b1", "a2"):
        made.add(record(name, 1))
    made.finish()

    assert made.table(("mean", ALL)).tolist() == [[2, 2], [1, 1]]


def test_pairs_gather_the_samples_that_count_in_both_arms() -> None:
    made = pairs(
        (record("a1", 9), record("a1", None)),
        (record("a2", 2), record("a2", 3)),
        (record("a3", 1), record("a3", 4)),
        (record("b1", None), record("b1", 8)),
        (record("c1", 6), record("c1", 0)),
    )

    assert made.before.table(("maximum", ALL)).tolist() == [[2, 1], [6, 1]]
    assert made.after.table(("maximum", ALL)).tolist() == [[4, 1], [0, 1]]
    assert made.before.table(("mean", ALL)).tolist() == [[3, 2], [6, 1]]
    assert made.before.n["maximum", "g"] == 2


def test_a_share_of_clusters_counts_the_clusters_in_which_one_arm_alone_succeeds() -> None:
    made = pairs(
        (record("a1", 9), record("a1", 1)),
        (record("a2", 1), record("a2", 1)),
        (record("b1", 1), record("b1", 9)),
        (record("c1", 9), record("c1", 9)),
    )

    assert (made.only_before["any", ALL], made.only_after["any", ALL]) == (1, 1)


def test_a_cluster_that_one_arm_has_no_value_for_is_no_pair() -> None:
    made = pairs((record("a1", -1), record("a1", 3)), (record("b1", 1), record("b1", 2)))

    assert made.before.table(("maximum", ALL)).tolist() == [[1, 1]]
    assert made.after.table(("maximum", ALL)).tolist() == [[2, 1]]


def many(clusters: int, of: int = 2) -> Tally:
    made = Tally([MEAN, ANY], "group")
    for number in range(clusters):
        for each in range(of):
            grade = {"score": float((number * 7 + each) % 11)}
            made.add(Record(f"{number:06}-{each}", f"c{number:06}", "graded", {"group": "g"}, grade))
    made.finish()
    return made


def test_many_clusters_are_put_into_groups_and_the_estimate_and_its_error_stay() -> None:
    clusters = 3 * MOST_CLUSTERS
    made = many(clusters)
    table = made.table(("mean", ALL))
    each = [sum((number * 7 + place) % 11 for place in range(2)) for number in range(clusters)]
    whole = cluster_jackknife([(total, 2.0) for total in each], ratio)
    grouped = cluster_jackknife(table, ratio)

    assert len(table) <= MOST_CLUSTERS
    assert table.sum(axis=0).tolist() == [sum(each), 2 * clusters]
    assert made.n["mean", ALL] == 2 * clusters
    assert grouped.standard_error == pytest.approx(whole.standard_error, rel=0.05)
    assert made.n["any", ALL] == clusters


def test_two_arms_with_many_clusters_have_the_same_groups() -> None:
    made = PairTally([MEAN], "group")
    for number in range(2 * MOST_CLUSTERS):
        name = f"c{number}"
        before, after = (Record(name, name, "graded", {"group": "g"}, {"score": number + more}) for more in (0, 1))
        made.add(before, after)
    made.finish()

    before, after = (each.table(("mean", ALL)) for each in (made.before, made.after))
    assert (after[:, 0] - before[:, 0] == before[:, 1]).all()


@pytest.mark.parametrize(("first", "second"), [(3, 4), (3, MOST_CLUSTERS + 1), (MOST_CLUSTERS + 1, 3)])
def test_sums_of_two_tables_are_added_cluster_by_cluster(first: int, second: int) -> None:
    both = many(first, of=1).sums["mean", ALL]
    both.update(many(second, of=1).sums["mean", ALL])

    expected = [sum(number * 7 % 11 for number in range(size)) for size in (first, second)]
    assert both.table().sum(axis=0).tolist() == [sum(expected), first + second]
    if max(first, second) < MOST_CLUSTERS:
        assert len(both.table()) == max(first, second)


@pytest.mark.parametrize("clusters", [50, MOST_CLUSTERS + 500])
def test_what_is_added_up_in_bulk_has_the_bytes_of_a_loop(clusters: int) -> None:
    draw = np.random.default_rng(0)
    names = [f"c{number}" for number in draw.integers(0, clusters, 3 * AT_ONCE)]
    scores = draw.normal(size=len(names)).tolist()
    made, one_by_one = Tally([MEAN], "group"), Sums()
    for place, (name, score) in enumerate(zip(names, scores, strict=True)):
        made.add(Record(str(place), name, "graded", {"group": "g"}, {"score": score}))
        one_by_one.add(name, (score, 1.0))
    made.finish()

    assert made.table(("mean", ALL)).tobytes() == one_by_one.table().tobytes()
    assert made.table(("mean", "g")).tobytes() == one_by_one.table().tobytes()
