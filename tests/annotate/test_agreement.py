"""Agreement of raters, and of a judge with them: numbers with their intervals."""

import csv
from pathlib import Path
from typing import Any

import pytest

from evenhand.annotate.judges import JudgesAgainstPeople, _Ratings, agreement_table
from evenhand.annotate.ratings import import_ratings
from evenhand.stats import Interval, cohen_interval, mean_interval
from support.rating_study import make_study

PEOPLE = Interval(0.5, 0.3, 0.7, 40)


@pytest.fixture
def ratings() -> _Ratings:
    """Two arms on 20 questions of 10 topics; the judge rates a third of the answers 40 points higher."""
    places = [(arm, f"q{number}") for number in range(20) for arm in ("a", "b")]
    people = {place: float(10 + 80 * (number % 2)) for number, place in enumerate(places)}
    judged = {place: min(100.0, people[place] + 40 * (number % 3 == 0)) for number, place in enumerate(places)}
    topics = {f"q{number}": f"t{number // 2}" for number in range(20)}
    return _Ratings(("a", "b"), "a", list(topics), topics, judged, people, 50.0)


def test_error_and_kappa_of_a_judge_have_limits_by_topic(ratings: _Ratings):
    found: Any = ratings.agreement("judge", "BS", "bias", PEOPLE)

    topics = [ratings.clusters[sample] for _, sample in ratings.rated]
    apart = [abs(ratings.scored[place] - ratings.rated[place]) for place in ratings.rated]
    bands = [
        [int(value >= 34) + int(value >= 67) for value in side.values()] for side in (ratings.rated, ratings.scored)
    ]
    assert found.limits["error"] == mean_interval(apart, topics, bounds=(0, 100))
    assert found.limits["kappa"] == cohen_interval(*bands, topics)
    assert (found.error, found.kappa) == (found.limits["error"].estimate, found.limits["kappa"].estimate)
    everything = JudgesAgainstPeople(("a", "b"), "a", 2, 50.0, 20, 20, [found], [])
    [row] = agreement_table("Agreement", everything, [found]).rows
    assert [(cell.low, cell.high) for cell in row if getattr(cell, "value", None) == 0.5] == [(0.3, 0.7)]


@pytest.mark.parametrize(
    ("people", "said"),
    [
        (Interval(0.12, -0.05, 0.3, 40), ["(Fleiss' kappa 0.12 [−0.05, 0.30]), so how far a judge agrees with them"]),
        (PEOPLE, []),
        (Interval(None, None, None, 0), []),
    ],
    ids=["apart", "agreed", "one rater"],
)
def test_raters_who_disagree_among_themselves_are_no_measure_of_a_judge(
    ratings: _Ratings, people: Interval, said: list[str]
):
    both: list[Any] = [ratings.agreement(judge, "BS", "bias", people) for judge in ("judge", "another")]

    sentences = JudgesAgainstPeople(("a", "b"), "a", 2, 50.0, 80, 80, both, []).sentences

    warned = [each for each in sentences if "the raters agree little beyond chance among themselves" in each]
    assert len(warned) == len(said)
    assert all(words in sentence for words, sentence in zip(said, warned, strict=True))


def test_kappa_of_raters_has_limits(tmp_path: Path):
    folder = make_study(tmp_path, ("ann", "ben"))
    for place, path in enumerate(sorted((folder / "raters").glob("*.csv"))):
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = sorted(csv.DictReader(file), key=lambda row: row["id"])
        for number, row in enumerate(rows):
            row.update(BS=str(90 * ((number + place * (number % 3 == 0)) % 2)), CE="50", LS="50")
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    found = import_ratings(folder)

    both = found.agreement["BS"]
    assert both.low is not None
    assert both.high is not None
    assert -1 <= both.low < found.kappa["BS"] == both.estimate < both.high <= 1
    assert found.agreement["CE"].estimate is found.kappa["CE"] is None
    assert {each.agreement.estimate == each.kappa for each in found.ratings} == {True}
