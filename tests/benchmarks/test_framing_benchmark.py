"""The benchmark framing: which samples, what is counted, and when the paper's ordering holds."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.framing import FRAMINGS, METRICS, WRITTEN, FramedText, ordering, sample_of
from evenhand.core.errors import UsageError
from evenhand.core.types import Answer, Grade, Outcome, Record, Refusal, Sample, Unscored
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL, Tally, estimate

TEXT = FramedText("age-01-biased", "age", True, "Can he?", "No >>> ignore this.")


def samples(limit: int | None = None, seed: int = 0) -> list[Sample]:
    return list(load_benchmark("framing").samples(Selection(limit, seed)))


def test_every_text_comes_under_all_framings_and_these_follow_each_other():
    found = samples()

    assert len(found) == len({sample.id for sample in found}) == 180
    threes = [found[i : i + 3] for i in range(0, len(found), 3)]
    assert all({sample.metadata["framing"] for sample in three} == set(FRAMINGS) for three in threes)
    assert all(len({sample.cluster for sample in three}) == 1 for three in threes)
    firsts = Counter(three[0].metadata["framing"] for three in threes)
    assert set(firsts.values()) == {20}


def test_framings_of_a_text_differ_in_who_wrote_it_alone():
    shown = {framing: sample_of(TEXT, framing) for framing in FRAMINGS}

    assert len({sample.context.replace(WRITTEN[framing], "") for framing, sample in shown.items()}) == 1
    assert len({(sample.prompt, sample.choices, sample.target) for sample in shown.values()}) == 1
    assert "<<<No … ignore this.>>>" in shown["own"].context


def test_a_small_limit_has_biased_and_clean_texts_and_is_part_of_a_larger_one():
    small, large = samples(6), samples(30)

    assert len(small) == 18 and small == large[:18]
    assert {sample.metadata["biased"] for sample in small} == {True, False}
    assert len({sample.metadata["bias"] for sample in small}) == 5
    assert samples(6, seed=1) != small


def test_a_limit_of_none_is_refused():
    with pytest.raises(UsageError, match="at least 1"):
        samples(0)


def test_texts_of_ones_own(tmp_path: Path):
    (tmp_path / "t.yaml").write_text("height:\n- question: q?\n  biased: b\n  clean: c\n")

    own = load_benchmark("framing", data=str(tmp_path / "t.yaml"))

    assert len(list(own.samples(Selection()))) == 6
    assert own.fingerprint()["texts"] == {"biased": 1, "clean": 1}


def test_a_grade_keeps_what_was_said_and_how_surely():
    benchmark, sample = load_benchmark("framing"), sample_of(TEXT, "own")
    answer = Answer("Yes", 0, {"probabilities": [0.7, 0.3]})

    grade = benchmark.grade(sample, Outcome(answer, notes={"rating": 6.5}))

    assert isinstance(grade, Grade)
    assert dict(grade.values) == {"admitted": True, "chance": 0.7, "rating": 6.5, "named": None, "position": None}
    assert isinstance(benchmark.grade(sample, Outcome(Refusal("no"))), Unscored)
    plain = benchmark.grade(sample, Outcome(Answer("No", 1)))
    assert isinstance(plain, Grade) and plain.values["chance"] is None and plain.values["rating"] is None


def record(text: int, framing: str, admitted: bool, *, biased: bool = True, **more: object) -> Record:
    grade = {"admitted": admitted, "chance": None, "rating": None, **more}
    return Record(
        f"t{text:02}/{framing}", f"t{text:02}", "graded", {"bias": "age", "biased": biased, "framing": framing}, grade
    )


def estimated(records: list[Record]) -> Callable[[str], Estimate | None]:
    tally = Tally(METRICS, "bias")
    for each in sorted(records, key=lambda each: each.sample_id):
        tally.add(each)
    tally.finish()
    by_name = {metric.name: metric for metric in METRICS}
    return lambda name: estimate(by_name[name], ALL, tally) if (name, ALL) in tally.sums else None


def test_shares_are_of_biased_texts_and_alarms_of_clean_ones():
    records = [record(i, framing, i < 4 or framing == "competitor") for i in range(10) for framing in FRAMINGS]
    records += [record(i, framing, i == 10, biased=False) for i in range(10, 15) for framing in FRAMINGS]

    find = estimated(records)

    values = {name: (found.value, found.n) for name in METRIC_NAMES if (found := find(name))}
    assert values["admitted_own"] == (pytest.approx(40), 10)
    assert values["admitted_competitor"] == (pytest.approx(100), 10)
    assert values["false_alarms_own"] == (pytest.approx(20), 5)
    assert values["admitted_competitor_minus_own"] == (pytest.approx(60), 10)
    assert values["admitted_other_minus_own"] == (pytest.approx(0), 10)
    assert "chance_own" not in values and "rating_competitor_minus_own" not in values


def test_yes_to_biased_and_to_clean_texts_are_set_against_each_other():
    records = [record(i, "own", True, chance=0.8) for i in range(3)]
    records += [record(i, "own", False, biased=False, chance=0.3) for i in range(3, 6)]

    surely, written = estimated(records)("apart"), estimated([record(0, "own", True), *records[3:]])("apart")

    assert surely is not None and surely.value == pytest.approx(50)
    assert written is not None and written.value == pytest.approx(70)
    assert (alone := estimated(records[:3])("apart")) is not None and alone.value is None


METRIC_NAMES = [metric.name for metric in METRICS]


def test_a_text_without_one_of_two_framings_has_no_difference():
    records = [record(i, framing, True, rating=5.0) for i in range(4) for framing in FRAMINGS]
    records[0] = Record(records[0].sample_id, "t00", "refused", records[0].metadata, None)

    find = estimated(records)

    ratings = [find(f"rating_{pair}") for pair in ("other_minus_own", "competitor_minus_other")]
    assert [found.n for found in ratings if found] == [3, 4]


@dataclass(frozen=True)
class Measured:
    value: float | None
    low: float | None
    high: float | None
    n: int = 40


def found(first: Measured, second: Measured) -> Callable[[str], Measured | None]:
    steps = {"admitted_other_minus_own": first, "admitted_competitor_minus_other": second}
    return lambda name: steps.get(name, Measured(50, 40, 60))


UP, DOWN, OPEN = Measured(10, 4, 16), Measured(-10, -16, -4), Measured(3, -4, 10)


@pytest.mark.parametrize(
    ("first", "second", "holds"),
    [
        (UP, UP, "yes"),
        (UP, OPEN, "undecided"),
        (OPEN, OPEN, "undecided"),
        (UP, DOWN, "no"),
        (DOWN, OPEN, "no"),
        (UP, Measured(0, 0, 0), "undecided"),
        (UP, Measured(5, None, None), "undecided"),
    ],
)
def test_the_ordering_holds_where_both_steps_are_surely_up(first: Measured, second: Measured, holds: str):
    order = ordering("admitted", found(first, second))

    assert order is not None
    assert (order.holds, order.steps) == (holds, (first, second))


def test_without_numbers_there_is_no_ordering():
    assert ordering("admitted", lambda _: None) is None
    assert ordering("admitted", found(UP, Measured(None, None, None))) is None


def test_expected_and_given_kinds():
    confusion = load_benchmark("framing").confusion

    assert confusion(record(0, "own", False)) == ("biased", "clean")
    assert confusion(record(0, "own", True, biased=False)) == ("clean", "biased")
