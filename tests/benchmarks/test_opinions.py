"""The questions of `opinions`, how they are drawn and held out, and what is counted."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.benchmarks.base import Selection
from evenhand.benchmarks.opinions import METRICS, Opinions
from evenhand.core.errors import DataError, UnknownNameError, UsageError
from evenhand.core.types import Answer, Grade, Outcome, Record, Status, Unscored
from evenhand.data.debates import BIASES
from evenhand.models.fake import FunctionModel
from evenhand.show.view import metric_title

HELD_OUT = [
    {"id": "gardening", "bias": "age", "question": "What makes gardening good?"},
    {"id": "pay", "bias": "profession", "question": "Should pay differ?"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    content = {"format": "evenhand-pairs-1", "held_out": HELD_OUT}
    (tmp_path / "pairs.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


def drawn(limit: int | None = None, seed: int = 0, **options: Any) -> list[Any]:
    return list(Opinions(**options).samples(Selection(limit, seed)))


def record(status: Status = "graded", **grade: Any) -> Record:
    return Record("age/1", "1", status, {"bias": "age"}, grade or None)


def value(name: str, *records: Record) -> float | None:
    metric = next(each for each in METRICS if each.name == name)
    sums = [found for each in records if (found := metric.count(each)) is not None]
    return None if not sums else metric.scale * sum(each[0] for each in sums) / sum(each[1] for each in sums)


def test_all_types_of_bias_are_asked_evenly():
    samples = drawn(50)

    assert Counter(each.metadata["bias"] for each in samples) == dict.fromkeys(BIASES, 10)
    assert len({each.id for each in drawn()}) == len(drawn())
    assert {each.kind for each in samples} == {"chat"}


def test_a_smaller_limit_is_part_of_a_larger_one_and_the_seed_draws():
    assert drawn(10) == drawn(20)[:10]
    assert drawn(10) != drawn(10, seed=1)


def test_types_of_bias_can_be_chosen():
    assert {each.metadata["bias"] for each in drawn(bias="age, beauty")} == {"age", "beauty"}
    with pytest.raises(UnknownNameError, match="agee"):
        drawn(bias="agee")


def test_only_what_training_held_out_is_asked(folder: Path):
    assert sorted(each.prompt for each in drawn(data=str(folder))) == sorted(each["question"] for each in HELD_OUT)
    assert [each.id for each in drawn(data=str(folder), bias="age")] == ["age/gardening"]
    with pytest.raises(UnknownNameError, match="beauty"):
        drawn(data=str(folder), bias="beauty")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON"),
        ('{"format": "other"}', "not written by `evenhand train pairs`"),
        ("[]", "not written by"),
    ],
)
def test_a_wrong_folder_is_one_sentence(tmp_path: Path, content: str, words: str):
    (tmp_path / "pairs.json").write_text(content, encoding="utf-8")

    with pytest.raises(DataError, match=words):
        drawn(data=str(tmp_path))


def test_a_missing_file_is_one_sentence(tmp_path: Path):
    for data in ("none.yaml", "none.json"):
        with pytest.raises(DataError):
            drawn(data=str(tmp_path / data))
    with pytest.raises(UsageError):
        drawn(0)


def test_data_of_other_content_have_another_fingerprint(folder: Path):
    assert Opinions().fingerprint()["sha256"] != Opinions(data=str(folder)).fingerprint()["sha256"]


def test_an_empty_answer_is_unscored():
    benchmark, [sample] = Opinions(bias="age"), drawn(1, bias="age")

    assert benchmark.grade(sample, Outcome(Answer("Two words"))) == Grade({"length": 2})
    assert isinstance(benchmark.grade(sample, Outcome(Answer("  "))), Unscored)


def test_ratings_are_means_and_a_missing_one_is_no_zero():
    rated = record(length=10, bias=0.2, communication=0.8, soundness=0.6)
    better = record(length=20, bias=0.4, communication=0.6, soundness=0.8)
    unrated, refused = record(length=5), record("refused")

    everything = (rated, better, unrated, refused)

    assert value("bias", *everything) == pytest.approx(30)
    assert value("communication", *everything) == pytest.approx(70)
    assert value("soundness", unrated) is None
    assert value("scored", *everything) == pytest.approx(200 / 3)
    assert value("refusal", *everything) == pytest.approx(25)


def test_ratings_are_shown_from_0_to_100_without_a_percent_sign(tmp_path: Path):
    rated = '{"bias": 40, "communication": 80, "soundness": 70}'
    judge = FunctionModel(lambda *_: rated, spec="fake/judge")
    models = {"base": FunctionModel(lambda *_: "Some people do, others do not."), "judge": judge}

    study = evenhand.audit(models, benchmark="opinions", out=tmp_path / "run", limit=20, controls="off")

    bias = next(each for each in study.metrics if each.name == "bias")
    assert metric_title(bias) == "Bias score (BS)"
    assert "Bias score (BS) is 40 (lower is better)" in study.findings[0].text
    assert "Bias score (BS): 40.0 (95 % interval" in study.findings[0].detail
    assert (bias.points, bias.margin, bias.best) == (True, 3.0, 0.0)
    assert metric_title(next(each for each in study.metrics if each.name == "scored")) == "Rated,\u00a0%"


def test_the_direction_of_every_rating_is_stated():
    assert {each.name: each.better for each in METRICS[:3]} == {
        "bias": "lower", "communication": "higher", "soundness": "higher",
    }  # fmt: skip
