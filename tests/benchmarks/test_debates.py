"""The benchmark of debates: which topics it selects, and how it counts what was said."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.debates import (
    DECLINED,
    DISAGREED,
    ROUNDS,
    STATEMENTS,
    Debates,
    Statement,
    disagreements,
    noted,
    roles_of,
)
from evenhand.core.errors import DataError, UnknownNameError, UsageError
from evenhand.core.types import Answer, Grade, Outcome, Record, Sample, Unscored
from evenhand.data.debates import BIASES, load_topics, topics_yaml

BENCHMARK = load_benchmark("debates")


def test_a_sample_is_a_topic_with_its_question_and_roles():
    samples = list(load_benchmark("debates", bias="profession", topics=5).samples(Selection()))

    assert len(samples) == 5
    sample = samples[0]
    assert sample.kind == "debate"
    assert sample.prompt.endswith("?")
    assert sample.id == f"profession/{sample.cluster}"
    assert (sample.metadata["bias"], sample.metadata["topic"]) == ("profession", sample.cluster)
    assert [role.name for role in roles_of(sample)] == ["doctor", "lawyer", "engineer"]


def test_fewer_topics_are_a_part_of_more_and_another_seed_draws_others():
    def ids(topics: int | None, seed: int = 0, limit: int | None = None) -> list[str]:
        found = load_benchmark("debates", topics=topics).samples(Selection(limit, seed))
        return [sample.id for sample in found]

    assert len(ids(None)) == len(set(ids(None))) >= 60
    assert ids(10) == ids(None)[:10] == ids(20, limit=10)
    assert ids(10) != ids(10, seed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": 5000}, r"There are 64 topics on age, not 5,000; .*--generate"),
        ({"topics": 0}, "topics of the benchmark debates must be a whole number of at least 1, not 0"),
        ({"topics": "many"}, "topics of the benchmark debates must be a whole number of at least 1, not 'many'"),
        ({"roles": 1}, "roles of the benchmark debates must be a whole number of at least 2, not 1"),
        ({"roles": 6}, "There are 5 roles for age, not 6"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        list(load_benchmark("debates", **options).samples(Selection()))


def test_an_unknown_type_of_bias_is_refused_by_name():
    with pytest.raises(UnknownNameError, match="did you mean nationality"):
        load_benchmark("debates", bias="nation").fingerprint()


def test_the_fingerprint_tells_roles_and_content():
    two, three = (load_benchmark("debates", roles=count).fingerprint() for count in (2, 3))

    assert two["roles"] == ["20-year-old", "40-year-old"]
    assert two["sha256"] != three["sha256"]


def ids(limit: int | None = None, **options: Any) -> list[str]:
    return [sample.id for sample in load_benchmark("debates", **options).samples(Selection(limit))]


def biases(samples: Sequence[str]) -> list[str]:
    return [name.partition("/")[0] for name in samples]


def test_several_types_of_bias_take_turns_and_each_has_its_own_topics_in_their_order():
    both = ids(bias="age,beauty", topics=3)

    assert biases(both) == ["age", "beauty"] * 3
    assert both[::2] == ids(bias="age", topics=3)
    assert both[1::2] == ids(bias="beauty", topics=3)


def test_all_types_of_bias_are_the_five_that_are_built_in():
    assert biases(ids(bias="all", topics=2)) == [*BIASES, *BIASES]
    assert sorted(ids(bias="all")) == sorted(each for bias in BIASES for each in ids(bias=bias))


def test_the_limit_is_that_of_all_types_together():
    assert biases(ids(limit=7, bias="all")) == [*BIASES, *BIASES[:2]]
    assert ids(limit=7, bias="all") == ids(bias="all")[:7]


def test_a_type_that_is_named_twice_counts_once():
    assert ids(bias="age,age", topics=2) == ids(bias="age", topics=2)


def test_every_sample_of_several_types_has_its_own_roles_and_what_to_look_for():
    age, job = load_benchmark("debates", bias="age,profession", topics=1).samples(Selection())

    assert [role.name for role in roles_of(job)] == ["doctor", "lawyer", "engineer"]
    assert roles_of(age) != roles_of(job)
    assert age.metadata["about"] != job.metadata["about"]


def test_the_fingerprint_of_one_type_is_what_it_was_and_that_of_several_names_each():
    alone = load_benchmark("debates", bias="beauty").fingerprint()
    several = load_benchmark("debates", bias="age,beauty").fingerprint()

    assert set(alone) == {"name", "version", "bias", "topics", "roles", "sha256"}
    assert [each["bias"] for each in several["biases"]] == ["age", "beauty"]
    assert {**several["biases"][1], "name": "debates", "version": alone["version"]} == alone


@pytest.mark.parametrize("bias", ["age,nation", "nation,age"])
def test_an_unknown_one_of_several_types_is_refused_by_name(bias: str):
    with pytest.raises(UnknownNameError, match="'nation'; did you mean nationality"):
        ids(bias=bias)


def test_a_file_of_topics_is_about_one_type(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(topics_yaml(load_topics("age"), {}), encoding="utf-8")

    with pytest.raises(DataError, match="the topics are about 'age', not 'beauty'"):
        ids(bias="age,beauty", data=str(file))


def said(role: str, number: int, score: float | None, rank: int | None = None) -> Statement:
    return Statement(role, number, "…", score, score, rank)


DEBATE = (
    *(said("a", 1, 6.0, 3), said("b", 1, 4.0, 1), said("c", 1, 2.0, 2)),
    *(said("a", 2, None), said("b", 2, None), said("c", 2, None)),
    *(said("a", 3, 3.0, 2), said("b", 3, 1.0, 1)),
)


def graded(statements: tuple[Statement, ...] = DEBATE, last: int = 3, declined: int = 1) -> Record:
    notes = {
        STATEMENTS: noted(statements),
        ROUNDS: last,
        DECLINED: [{}] * declined,
        DISAGREED: disagreements(statements),
    }
    grade = BENCHMARK.grade(Sample("s", "debate", "?"), Outcome(Answer("…"), notes=notes))
    assert isinstance(grade, Grade)
    return Record("s", "s", "graded", {}, grade.values)


def value(name: str, *records: Record) -> float | None:
    metric = next(each for each in BENCHMARK.metrics() if each.name == name)
    sums = [added for record in records if (added := metric.count(record)) is not None]
    return float(metric.statistic(np.sum(sums, axis=0))) * metric.scale if sums else None


def test_scores_are_means_over_the_statements_of_a_round():
    record = graded()

    assert value("first_score", record) == pytest.approx(4.0)
    assert value("last_score", record) == pytest.approx(2.0)


def test_the_change_is_that_of_roles_with_a_score_in_both_rounds():
    assert value("change", graded()) == pytest.approx(((3 - 6) + (1 - 4)) / 2)
    assert value("change", graded(DEBATE[:3], last=1)) is None


def test_high_statements_are_those_above_three():
    assert value("high", graded()) == pytest.approx(100 * 2 / 5)


def test_rank_and_scores_disagree_where_they_order_two_statements_differently():
    assert disagreements(DEBATE) == [1]
    assert value("disagreement", graded()) == pytest.approx(50.0)
    assert value("disagreement", graded((said("a", 1, 2.0), said("b", 1, 1.0)))) is None
    assert disagreements((said("a", 1, 2.0, 1), said("b", 1, 2.0, 2))) == []


def test_unread_and_declined_turns_are_shares_of_all_turns():
    assert value("unread", graded()) == pytest.approx(100 * 3 / 9)
    assert value("declined", graded()) == pytest.approx(100 * 1 / 9)


def test_a_debate_without_any_score_is_unscored_and_counts_as_unread():
    notes = {STATEMENTS: noted(DEBATE[3:6]), ROUNDS: 1, DECLINED: [], DISAGREED: []}
    outcome = Outcome(Answer("…"), notes=notes)

    assert isinstance(BENCHMARK.grade(Sample("s", "debate", "?"), outcome), Unscored)
    unscored = Record("s", "s", "unscored", {}, None)
    assert value("unread", unscored) == 100.0
    assert value("last_score", unscored) is None
    assert value("coverage", unscored, graded()) == 50.0


def test_empty_names_of_types_are_left_out() -> None:
    assert [each.bias for each in Debates(bias="age,,beauty,").sources] == ["age", "beauty"]
