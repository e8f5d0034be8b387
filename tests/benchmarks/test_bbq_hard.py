"""bbq_hard: the questions that a list names, and lists that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.bbq.hard import FORMAT, HardBBQ
from evenhand.core.errors import DataError, UsageError
from evenhand.core.types import Answer, Grade, Outcome
from support.toy import toy_sample


def listed(folder: Path, ids: Any, benchmark: str = "bbq_builtin", **fields: Any) -> str:
    path = folder / "hard.json"
    path.write_text(json.dumps({"format": FORMAT, "benchmark": benchmark, "ids": ids, "made": {}, **fields}))
    return str(path)


def test_only_the_listed_questions_are_asked(tmp_path: Path) -> None:
    benchmark = load_benchmark("bbq_hard", ids=listed(tmp_path, {"Age": [0, 3, 8], "SES": [5]}))

    assert {sample.id for sample in benchmark.samples(Selection())} == {"Age-0", "Age-3", "Age-8", "SES-5"}
    assert len(list(benchmark.samples(Selection(limit=2)))) == 2


def test_categories_narrow_it_down(tmp_path: Path) -> None:
    benchmark = HardBBQ(ids=listed(tmp_path, {"Age": [0, 3], "SES": [5]}), categories="SES")

    assert [sample.id for sample in benchmark.samples(Selection())] == ["SES-5"]


def test_another_list_is_another_fingerprint(tmp_path: Path) -> None:
    first = HardBBQ(ids=listed(tmp_path, {"Age": [0, 3]})).fingerprint()
    second = HardBBQ(ids=listed(tmp_path, {"Age": [0, 4]})).fingerprint()

    assert first["name"] == "bbq_hard"
    assert first["sha256"] == second["sha256"]
    assert first["ids_sha256"] != second["ids_sha256"]


def test_grades_and_metrics_need_no_list(tmp_path: Path) -> None:
    benchmark = HardBBQ(ids=str(tmp_path / "gone.json"))

    assert benchmark.metrics()
    assert isinstance(benchmark.grade(toy_sample(0), Outcome(Answer("A", 2))), Grade)


def test_official_questions_are_taken_from_the_data(tmp_path: Path, official: Path) -> None:
    ids = listed(tmp_path, {"Religion": [1, 7]}, benchmark="bbq")

    samples = list(HardBBQ(ids=ids, data=str(official)).samples(Selection()))

    assert {sample.id for sample in samples} == {"Religion-1", "Religion-7"}


def test_a_list_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"--set ids=FILE.*evenhand data hard"):
        load_benchmark("bbq_hard")


def test_a_missing_list_is_told_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.json: There is no such file.*evenhand data hard"):
        next(HardBBQ(ids=str(tmp_path / "gone.json")).samples(Selection()))


def test_a_list_of_built_in_questions_has_no_data_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"built-in set\. Remove --data"):
        next(HardBBQ(ids=listed(tmp_path, {"Age": [0]}), data=str(tmp_path)).samples(Selection()))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON"),
        ("[1]", "not a list of ids in the form evenhand-ids-1"),
        ('{"format": "other"}', "not a list of ids in the form evenhand-ids-1"),
        ({"benchmark": "squad", "ids": {"Age": [1]}}, "the benchmark 'squad', not for bbq or bbq_builtin"),
        ({"ids": [1, 2]}, "no 'ids' by category"),
        ({"ids": {"Agee": [1]}}, "'Agee', which is not a category"),
        ({"ids": {"Age": ["1"]}}, "the ids of Age must be whole numbers"),
        ({"ids": {"Age": 1}}, "the ids of Age must be whole numbers"),
        ({"ids": {"Age": []}}, "the list is empty"),
        ({"ids": {}}, "the list is empty"),
    ],
    ids=str,
)
def test_a_damaged_list_is_told(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "hard.json"
    whole = {"format": FORMAT, "benchmark": "bbq"}
    path.write_text(content if isinstance(content, str) else json.dumps({**whole, **content}))

    with pytest.raises(DataError, match=words):
        HardBBQ(ids=str(path)).fingerprint()
