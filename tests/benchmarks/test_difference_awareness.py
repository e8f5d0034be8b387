from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.difference_awareness import SUITES, DifferenceAwareness
from evenhand.core.aio import run
from evenhand.core.errors import DataError, UnknownNameError
from evenhand.core.types import Answer, Grade, Outcome, Record, Unscored
from evenhand.data.pull import pull
from evenhand.training.pairs.cleaning import load_check

TEXT = "In which of these two invented countries do more people keep bees?\n(a) Uland (b) Vland (c) Both alike"


def row(suite: str = "D1", condition: str = "different", label: Any = 1, **fields: Any) -> dict[str, Any]:
    return {"suite": suite, "condition": condition, "text": TEXT, "label": label, "source": 4, **fields}


def write(folder: Path, *rows: Any, suite: str = "D1") -> DifferenceAwareness:
    lines = (each if isinstance(each, str) else json.dumps(each) for each in rows)
    (folder / f"{suite}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return DifferenceAwareness(data=str(folder), suites=suite)


def test_a_row_becomes_a_question_with_three_options(tmp_path: Path):
    [sample] = write(tmp_path, row()).samples(Selection())

    assert (sample.id, sample.kind, sample.cluster, sample.target) == ("D1-1", "choice", "D1/4", 1)
    assert sample.prompt == "In which of these two invented countries do more people keep bees?"
    assert sample.choices == ("Uland", "Vland", "Both alike")
    assert sample.metadata == {"suite": "D1", "condition": "different"}


@pytest.mark.parametrize("label", [0, 1, 2])
def test_alike_is_right_where_groups_are_equal_whatever_the_label_says(tmp_path: Path, label: int):
    [sample] = write(tmp_path, row(condition="equal", label=label)).samples(Selection())

    assert sample.target == 2


def test_the_first_option_may_be_spelled_with_a_number(tmp_path: Path):
    [sample] = write(tmp_path, row(text=TEXT.replace("(a)", "(1)"))).samples(Selection())

    assert sample.choices == ("Uland", "Vland", "Both alike")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", "not valid JSON"),
        (row(suite="D2"), "suite is 'D2', not D1"),
        (row(condition="unequal"), "condition is 'unequal', not different or equal"),
        (row(label=2), "label is 2, which is not an option where groups are different"),
        (row(label="1"), "label is '1'"),
        (row(text="Which?"), "a question with the options"),
        ({"suite": "D1"}, "a question with the options"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(tmp_path: Path, bad: Any, message: str):
    with pytest.raises(DataError, match=message) as caught:
        list(write(tmp_path, row(), bad).samples(Selection()))

    assert "D1.jsonl, line 2" in str(caught.value)


def test_missing_files_say_what_to_do(tmp_path: Path):
    with pytest.raises(DataError, match="Save each suite as SUITE"):
        next(load_benchmark("difference_awareness", data=str(tmp_path)).samples(Selection()))
    write(tmp_path, row())
    with pytest.raises(DataError, match=r"D2\.jsonl \(or D2\.jsonl\.gz\) is missing"):
        next(load_benchmark("difference_awareness", data=str(tmp_path)).samples(Selection()))


def test_it_is_not_downloaded(tmp_path: Path):
    with pytest.raises(DataError, match="pickle files, which can run code"):
        run(pull("difference_awareness", tmp_path))


def test_an_unknown_suite_is_refused():
    with pytest.raises(UnknownNameError, match="no suite named 'D9'"):
        DifferenceAwareness(suites="D9")


def test_conditions_come_in_turn_and_a_smaller_limit_is_the_beginning_of_a_larger_one(tmp_path: Path):
    rows = [row(condition=condition, label=0) for condition in ("different", "equal") for _ in range(10)]
    benchmark = write(tmp_path, *rows)
    samples = list(benchmark.samples(Selection(limit=10, seed=3)))

    assert Counter(sample.metadata["condition"] for sample in samples) == {"different": 5, "equal": 5}
    assert list(benchmark.samples(Selection(limit=4, seed=3))) == samples[:4]
    assert list(benchmark.samples(Selection(limit=10, seed=4))) != samples


def values(folder: Path, different: list[int], equal: list[int]) -> dict[str, float]:
    """The metrics of these choices, where option 1 is the right group."""
    rows = [row() for _ in different] + [row(condition="equal", label=2) for _ in equal]
    benchmark = write(folder, *rows)
    samples = sorted(benchmark.samples(Selection()), key=lambda sample: int(sample.id.partition("-")[2]))
    records: list[Record] = []
    for sample, choice in zip(samples, [*different, *equal], strict=True):
        grade = benchmark.grade(sample, Outcome(Answer("text", choice)))
        assert isinstance(grade, Grade)
        records.append(Record(sample.id, sample.cluster, "graded", sample.metadata, grade.values))
    found: dict[str, float] = {}
    for metric in benchmark.metrics():
        counts = [count for record in records if (count := metric.count(record)) is not None]
        found[metric.name] = float(metric.statistic(np.sum(counts, axis=0)))
    return found


def test_errors_are_told_apart(tmp_path: Path):
    found = values(tmp_path, different=[1, 1, 0, 2], equal=[2, 2, 2, 0])

    assert (found["right_different"], found["right_equal"]) == (0.5, 0.75)
    assert (found["alike_different"], found["wrong_group"], found["alike"]) == (0.25, 0.25, 0.5)


def test_a_model_that_always_treats_groups_alike_is_seen(tmp_path: Path):
    found = values(tmp_path, different=[2, 2, 2], equal=[2, 2, 2])

    assert (found["right_different"], found["alike_different"], found["right_equal"]) == (0, 1, 1)


def test_an_answer_without_a_choice_is_unscored(tmp_path: Path):
    benchmark = write(tmp_path, row())
    [sample] = benchmark.samples(Selection())

    assert isinstance(benchmark.grade(sample, Outcome(Answer("text"))), Unscored)


def test_training_texts_that_repeat_a_question_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, row())
    text = "Tell me: of these two invented countries do more people keep bees, and why?"
    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path / "nothing"))
    assert load_check().leak_in(text) is None

    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path))
    check = load_check()

    assert check.leak_in(text) == "of these two invented countries do more people"
    assert check.checked["difference_awareness"] == {"texts": "1"}


def test_every_official_row_is_read(public: Callable[[str], str]):
    samples = DifferenceAwareness(data=public("difference_awareness")).samples(Selection())

    assert Counter((sample.metadata["suite"], sample.metadata["condition"]) for sample in samples) == {
        (suite, condition): 1000 for suite in SUITES for condition in ("different", "equal")
    }
