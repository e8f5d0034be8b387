"""StereoSet: the official scores, per term and then over terms, by likelihood and by choice."""

import json
from pathlib import Path

import numpy as np
import pytest

from evenhand.benchmarks.base import Selection
from evenhand.benchmarks.stereoset import FILE, LABELS, METRICS, StereoSet, comparisons, load_triples
from evenhand.core.errors import DataError
from evenhand.core.types import Answer, Grade, Outcome, Record


def row(number: int, term: str) -> dict[str, object]:
    sentences = [{"gold_label": label, "sentence": f"The {term} is {label}.", "id": label} for label in LABELS]
    context = f"A {term} came in."
    return {"id": f"{number}", "target": term, "bias_type": "profession", "context": context, "sentences": sentences}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [row(0, "nurse"), row(1, "nurse"), row(2, "nurse"), row(3, "pilot")]
    path = tmp_path / FILE
    path.write_text(json.dumps({"data": {"intrasentence": rows, "intersentence": [row(4, "tailor")]}}))
    return path


def records(file: Path, scores: dict[str, tuple[float, float, float]]) -> list[Record]:
    benchmark = StereoSet(data=str(file))
    found: list[Record] = []
    for sample in sorted(benchmark.samples(Selection()), key=lambda each: each.id):
        values = scores[sample.id.rpartition("/")[2]]
        details = {"log_likelihoods": [2 * each for each in values], "tokens": [2, 2, 2]}
        grade = benchmark.grade(sample, Outcome(Answer("", 0, details)))
        assert isinstance(grade, Grade)
        found.append(Record(sample.id, sample.cluster, "graded", sample.metadata, grade.values))
    return found


def value(name: str, found: list[Record]) -> float:
    metric = next(each for each in METRICS if each.name == name)
    assert metric.gather is not None
    clusters = [[each for each in found if each.cluster == term] for term in sorted({each.cluster for each in found})]
    sums = np.sum([metric.gather(each) for each in clusters], axis=0)
    return float(metric.statistic(sums)) * metric.scale


def test_scores_are_means_over_terms(file: Path):
    """Worked out by hand after the authors' script: nurse 1 of 3, pilot 1 of 1."""
    found = records(
        file,
        {"0": (-1, -2, -3), "1": (-2, -1, -3), "2": (-3, -2, -1), "3": (-1, -2, -1.5)},
    )

    assert value("stereotype", found) == pytest.approx(100 * (1 / 3 + 1) / 2)
    assert value("language", found) == pytest.approx(100 * (4 / 6 + 1 / 2) / 2)
    expected = 58.3333 * min(66.6667, 33.3333) / 50
    assert value("icat", found) == pytest.approx(expected, abs=1e-2)
    assert value("preference", found) == pytest.approx(2 * 66.6667 - 100, abs=1e-3)


@pytest.mark.parametrize(
    ("scores", "stereotype", "language", "icat"),
    [((-1, -2, -3), 100, 100, 0), ((-2, -1, -3), 0, 100, 0), ((-3, -2, -1), 0, 0, 0)],
)
def test_ideal_and_degenerate_models_get_the_papers_scores(
    file: Path, scores: tuple[float, float, float], stereotype: float, language: float, icat: float
):
    found = records(file, dict.fromkeys("0123", scores))

    assert (value("stereotype", found), value("language", found), value("icat", found)) == (stereotype, language, icat)


def test_a_choice_decides_what_it_can():
    assert comparisons([1.0, 0.0, 0.0]) == {"stereotype": 1.0, "related": 0.75}
    assert comparisons([0.0, 1.0, 0.0]) == {"stereotype": 0.0, "related": 0.75}
    assert comparisons([0.0, 0.0, 1.0]) == {"stereotype": None, "related": 0.0}


def test_a_sentence_that_follows_is_scored_given_its_context(file: Path):
    (sample,) = StereoSet(data=str(file), task="intersentence").samples(Selection())

    assert sample.context == "A tailor came in."
    assert sample.texts[0] == "A tailor came in. The tailor is stereotype."


def test_another_file_is_refused(tmp_path: Path):
    path = tmp_path / FILE
    path.write_text('{"data": []}')

    with pytest.raises(DataError, match="is not StereoSet's development set"):
        load_triples(path)
