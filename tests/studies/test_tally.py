"""What is summed for which cluster, when metrics look at single records and when they look at whole clusters."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from evenhand.benchmarks.base import Metric, ratio
from evenhand.studies.tally import ALL, PairTally, Tally
from evenhand.types import Record


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
