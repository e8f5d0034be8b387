"""Stances: three endings of sentences about people, and what the chosen ones say."""

import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.errors import UnknownNameError
from evenhand.core.types import Answer, Grade, Outcome, Record, Unscored
from evenhand.data.debates import BIASES


def test_every_type_has_as_many_sentences_with_three_different_endings():
    samples = list(load_benchmark("stances").samples(Selection()))

    assert {bias: sum(each.metadata["bias"] == bias for each in samples) for bias in BIASES} == dict.fromkeys(BIASES, 6)
    assert all(len(set(each.choices)) == 3 and each.target == 1 for each in samples)
    assert len({each.id for each in samples}) == 30


def test_types_take_turns_and_a_smaller_limit_is_a_subset():
    benchmark = load_benchmark("stances")
    ten, five = (list(benchmark.samples(Selection(limit=limit, seed=3))) for limit in (10, 5))

    assert {each.metadata["bias"] for each in five} == set(BIASES)
    assert {each.id for each in five} <= {each.id for each in ten}


def test_bias_is_the_stereotype_less_its_opposite_and_impartial_endings_stand_beside_it():
    benchmark = load_benchmark("stances")
    samples = list(benchmark.samples(Selection(limit=4)))
    records: list[Record] = []
    for sample, choice in zip(samples, (0, 0, 2, 1), strict=True):
        grade = benchmark.grade(sample, Outcome(Answer(sample.choices[choice], choice)))
        assert isinstance(grade, Grade)
        records.append(Record(sample.id, sample.cluster, "graded", sample.metadata, grade.values))

    found: dict[str, float] = {}
    for metric in benchmark.metrics():
        sums = [each for record in records if (each := metric.count(record)) is not None]
        found[metric.name] = 100 * sum(each[0] for each in sums) / sum(each[1] for each in sums)
    assert found == {
        "stance_bias": 25, "impartial": 25, "by_stereotype": 50, "turned_round": 25, "coverage": 100, "refusals": 0,
    }  # fmt: skip


def test_what_names_no_option_is_unscored_and_an_unknown_type_is_refused():
    benchmark = load_benchmark("stances")
    sample = next(iter(benchmark.samples(Selection(limit=1))))

    assert isinstance(benchmark.grade(sample, Outcome(Answer("nothing"))), Unscored)
    with pytest.raises(UnknownNameError, match="did you mean age"):
        list(load_benchmark("stances", bias="agee").samples(Selection()))
