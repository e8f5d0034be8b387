from __future__ import annotations

import json
import os
import random
import re
import string
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from evenhand.benchmarks.base import Metric, Selection, load_benchmark
from evenhand.benchmarks.squad import (
    BuiltinSquad,
    Question,
    Squad,
    exact_match,
    f1,
    normalised,
    sample_of,
    score_predictions,
)
from evenhand.cli.metrics import metrics
from evenhand.core.errors import DataError, UsageError
from evenhand.core.types import Answer, Grade, Outcome, Record, Refusal, Sample, Unscored

BENCHMARK = BuiltinSquad()
ASKED = Question("q1", "Stairs", "Yesterday Ann Lee fell.", "Who fell?", ("Ann Lee", "Ann"))
NOT_TOLD = replace(ASKED, id="q2", text="Who ran?", answers=())


def graded(question: Question, text: str | None) -> dict[str, Any]:
    """The grade of an answer, or of an abstention where there is no text."""
    given = Answer(text or "", details={"abstained": text is None})
    grade = BENCHMARK.grade(sample_of(question), Outcome(given))
    assert isinstance(grade, Grade)
    return dict(grade.values)


def record(question: Question, text: str | None) -> Record:
    sample = sample_of(question)
    return Record(sample.id, sample.cluster, "graded", sample.metadata, graded(question, text))


def ungraded(question: Question, status: Any) -> Record:
    return replace(record(question, None), status=status, grade=None)


def metric(name: str) -> Metric:
    return next(metric for metric in BENCHMARK.metrics() if metric.name == name)


def value(name: str, records: list[Record]) -> float:
    counts = [count for record in records if (count := metric(name).count(record)) is not None]
    return float(metric(name).statistic(np.sum(counts, axis=0))) if counts else float("nan")


class TestScores:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("The  Beatles!", "beatles"),
            ("a cat, an owl and the dog", "cat owl and dog"),
            ("U.S.", "us"),
            ("well-known", "wellknown"),
            ("1,500", "1500"),
            ("theatre another banana", "theatre another banana"),
            ("ÉCOLE “Naïve”", "école “naïve”"),
            ("a–b", "–b"),
            ("\tx\u00a0y\n", "x y"),
            ("the", ""),
            ("...", ""),
            ("", ""),
        ],
    )
    def test_texts_are_normalised_as_the_official_rules_say(self, text: str, expected: str) -> None:
        assert normalised(text) == expected

    @pytest.mark.parametrize(
        ("prediction", "answers", "exact", "agreement"),
        [
            ("the Normans", ["Normans"], True, 1.0),
            ("in 1066", ["1066"], False, 2 / 3),
            ("10th century", ["10th and 11th centuries", "in the 10th century"], False, 4 / 5),
            ("to to be", ["to be to be"], False, 6 / 7),
            ("Paris", ["London"], False, 0.0),
            ("Paris", [], False, 0.0),
            ("", [], True, 1.0),
            ("the", [], True, 1.0),
            ("", ["London"], False, 0.0),
            ("...", ["London"], False, 0.0),
            ("", ["the"], True, 1.0),
            ("x", ["the", "x"], True, 1.0),
            ("", ["the", "x"], False, 0.0),
            ("İstanbul", ["İstanbul"], True, 1.0),
        ],
    )
    def test_known_cases(self, prediction: str, answers: list[str], exact: bool, agreement: float) -> None:
        assert exact_match(prediction, answers) is exact
        assert f1(prediction, answers) == pytest.approx(agreement)

    def test_random_texts_score_as_a_second_writing_of_the_rules_says(self) -> None:
        draw = random.Random(4)
        pieces = [
            "a",
            "an",
            "the",
            "The",
            "cat",
            "cats",
            "1,000",
            "1000",
            "é",
            "É",
            "-",
            ".",
            "“",
            " ",
            "  ",
            "\n",
            "'s",
        ]

        def text() -> str:
            return "".join(draw.choice(pieces) + draw.choice(["", " "]) for _ in range(draw.randrange(7)))

        exact = partial = 0
        for _ in range(5000):
            prediction, answers = text(), [text() for _ in range(draw.randrange(4))]
            expected = plain_scores(prediction, answers)
            assert (exact_match(prediction, answers), f1(prediction, answers)) == pytest.approx(expected)
            exact += expected[0] == 1
            partial += 0 < expected[1] < 1

        assert min(exact, partial) > 500


def plain_scores(prediction: str, answers: list[str]) -> tuple[float, float]:
    """Exact match and F1, written once more from the description, character by character and word by word."""

    def words(text: str) -> list[str]:
        kept = "".join(char for char in text.lower() if char not in set(string.punctuation))
        return [word for word in re.sub(r"\b(a|an|the)\b", " ", kept).split() if word]

    predicted = words(prediction)
    rights = [found for answer in answers if (found := words(answer))] or [[]]
    best = 0.0
    for right in rights:
        left, hits = list(right), 0
        for word in predicted:
            if word in left:
                left.remove(word)
                hits += 1
        if not right or not predicted:
            best = max(best, float(right == predicted))
        elif hits:
            precision, recall = hits / len(predicted), hits / len(right)
            best = max(best, 2 * precision * recall / (precision + recall))
    return float(predicted in rights), best


def test_a_sample_carries_what_the_scores_need() -> None:
    sample = sample_of(ASKED)

    assert (sample.id, sample.kind, sample.cluster) == ("q1", "answer", "Stairs")
    assert (sample.prompt, sample.context, sample.target) == (
        "Who fell?",
        "Yesterday Ann Lee fell.",
        ["Ann Lee", "Ann"],
    )
    assert sample.metadata == {"group": "answerable", "answerable": True, "title": "Stairs"}
    assert sample_of(NOT_TOLD).target == []
    assert sample_of(NOT_TOLD).metadata["group"] == "unanswerable"


@pytest.mark.parametrize(
    ("question", "text", "kind", "score"),
    [
        (ASKED, "ann", "exact_answer", 1.0),
        (ASKED, "Mrs Ann", "partial_answer", 2 / 3),
        (ASKED, "Bob", "wrong_answer", 0.0),
        (ASKED, None, "no_answer", 0.0),
        (NOT_TOLD, None, "no_answer", 1.0),
        (NOT_TOLD, "Ann", "wrong_answer", 0.0),
        (NOT_TOLD, "the", "no_answer", 1.0),
    ],
)
def test_a_grade_says_how_far_the_answer_is_right(
    question: Question, text: str | None, kind: str, score: float
) -> None:
    assert graded(question, text) == {
        "f1": pytest.approx(score),
        "exact": score == 1,
        "abstained": kind == "no_answer",
        "kind": kind,
        "expected": "exact_answer" if question.answers else "no_answer",
    }


def test_words_beside_an_abstention_are_no_answer() -> None:
    grade = BENCHMARK.grade(sample_of(NOT_TOLD), Outcome(Answer("not told", details={"abstained": True})))

    assert isinstance(grade, Grade)
    assert grade.values["f1"] == 1


def test_no_answer_at_all_is_unscored() -> None:
    assert isinstance(BENCHMARK.grade(sample_of(ASKED), Outcome(Refusal("No."))), Unscored)


def test_what_could_not_be_read_counts_as_wrong_and_shows_in_coverage() -> None:
    read = [record(ASKED, "Ann"), record(ASKED, "Mrs Ann"), record(NOT_TOLD, None)]
    unread = [ungraded(ASKED, "unscored"), ungraded(NOT_TOLD, "refused"), ungraded(NOT_TOLD, "failed")]

    assert value("f1", read + unread) == pytest.approx((1 + 2 / 3 + 1) / 6)
    assert value("exact_match", read + unread) == pytest.approx(2 / 6)
    assert value("f1_has_answer", read + unread) == pytest.approx((1 + 2 / 3) / 3)
    assert value("exact_match_has_answer", read + unread) == pytest.approx(1 / 3)
    assert value("f1_no_answer", read + unread) == pytest.approx(1 / 3)
    assert value("exact_match_no_answer", read + unread) == pytest.approx(1 / 3)
    assert value("coverage", read + unread) == pytest.approx(3 / 6)
    assert value("refusals", read + unread) == pytest.approx(1 / 6)


def test_abstentions_are_counted_among_what_was_read() -> None:
    records = [record(ASKED, "Ann"), record(ASKED, None), record(NOT_TOLD, None), ungraded(NOT_TOLD, "failed")]

    assert value("abstained_has_answer", records) == pytest.approx(1 / 2)
    assert value("abstained_no_answer", records) == 1


def test_always_abstaining_looks_bad_where_there_is_an_answer() -> None:
    records = [record(question, None) for question in (ASKED, NOT_TOLD)]

    assert value("f1", records) == 0.5
    assert value("f1_has_answer", records) == 0
    assert value("abstained_has_answer", records) == 1


def test_f1_is_a_mean_and_exact_match_a_share() -> None:
    assert not metric("f1").share
    assert metric("exact_match").share
    assert {metric(name).better for name in (Squad.headline, "exact_match", "abstained_no_answer")} == {"higher"}


def test_headline_and_guardrails_are_metrics() -> None:
    assert {Squad.headline, *Squad.guardrails} <= {metric.name for metric in BENCHMARK.metrics()}


def test_confusion_pairs_the_expected_with_the_given_kind() -> None:
    assert BENCHMARK.confusion(record(ASKED, None)) == ("exact_answer", "no_answer")
    assert BENCHMARK.confusion(ungraded(ASKED, "failed")) is None


def test_both_sets_are_registered() -> None:
    assert type(load_benchmark("squad")) is Squad
    assert type(load_benchmark("squad_builtin")) is BuiltinSquad
    with pytest.raises(UsageError, match="no option of the benchmark squad_builtin named 'data'"):
        load_benchmark("squad_builtin", data="x")


def test_grades_and_metrics_need_no_data(tmp_path: Path) -> None:
    benchmark = Squad(data=str(tmp_path))

    assert benchmark.metrics()
    assert isinstance(benchmark.grade(sample_of(ASKED), Outcome(Answer("Ann"))), Grade)
    with pytest.raises(DataError, match="evenhand data pull squad"):
        next(benchmark.samples(Selection(limit=1)))


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        next(BENCHMARK.samples(Selection(limit=0)))


def check_spread(benchmark: Squad, limit: int, articles: int) -> None:
    samples = list(benchmark.samples(Selection(limit, seed=3)))
    by_article = Counter(sample.cluster for sample in samples)
    answerable = sum(sample.metadata["answerable"] for sample in samples)

    assert len({sample.id for sample in samples}) == len(samples) == limit
    assert abs(2 * answerable - limit) <= 1
    assert len(by_article) == min(limit, articles)
    assert max(by_article.values()) - min(by_article.values()) <= 2


@pytest.mark.parametrize("limit", [1, 6, 12, 13, 40])
def test_a_limit_is_spread_over_kinds_and_passages(limit: int) -> None:
    check_spread(BENCHMARK, limit, 12)


def test_without_a_limit_every_question_comes_once() -> None:
    samples = list(BENCHMARK.samples(Selection()))

    assert {sample.id for sample in samples} == {question.id for question in BENCHMARK.source.questions()}
    assert len(samples) == len({sample.id for sample in samples})


def ids(limit: int | None, seed: int) -> list[str]:
    return [sample.id for sample in BENCHMARK.samples(Selection(limit, seed))]


def test_a_smaller_limit_is_the_beginning_of_a_larger_one() -> None:
    assert ids(50, 5)[:17] == ids(17, 5)


def test_the_seed_decides() -> None:
    assert ids(20, 1) == ids(20, 1)
    assert set(ids(20, 1)) != set(ids(20, 2))


def test_the_fingerprint_names_the_data() -> None:
    found = BENCHMARK.fingerprint()

    assert (found["name"], found["version"]) == ("squad_builtin", "1")
    assert list(found["sha256"]) == ["built-in questions"]
    assert set(found["questions"]) == {"answerable", "unanswerable"}


class TestPredictions:
    def scores(self, folder: Path, predictions: Any) -> dict[str, dict[str, Any]]:
        path = folder / "predictions.json"
        path.write_text(predictions if isinstance(predictions, str) else json.dumps(predictions))
        return score_predictions(path, BENCHMARK)

    def test_a_missing_prediction_counts_as_wrong(self, tmp_path: Path) -> None:
        questions = list(BENCHMARK.source.questions())
        answerable = sum(bool(question.answers) for question in questions)
        right = {question.id: question.answers[0] if question.answers else "" for question in questions}
        dropped = next(question for question in questions if question.answers)
        del right[dropped.id]

        scores = self.scores(tmp_path, right)

        assert [scores[group]["n"] for group in scores] == [len(questions), answerable, len(questions) - answerable]
        assert [scores[group]["missing"] for group in scores] == [1, 1, 0]
        assert scores["answerable"]["f1"] == pytest.approx(100 * (answerable - 1) / answerable)
        assert scores["answerable"]["exact_match"] == pytest.approx(scores["answerable"]["f1"])
        assert scores["unanswerable"]["f1"] == 100
        low, high = scores["all"]["f1_interval"]
        assert low < scores["all"]["f1"] <= high

    def test_abstaining_from_everything_is_right_where_nothing_is_told(self, tmp_path: Path) -> None:
        scores = self.scores(tmp_path, {question.id: "" for question in BENCHMARK.source.questions()})

        assert (scores["answerable"]["exact_match"], scores["unanswerable"]["exact_match"]) == (0, 100)

    @pytest.mark.parametrize(
        ("predictions", "message"),
        [
            ("{oops", "not valid JSON"),
            (["01-1"], "one JSON object"),
            ({}, "no predictions"),
            ({"01-1": None}, "answer to 01-1 is None"),
            ({"nowhere": "x"}, "no question 'nowhere' in squad_builtin"),
        ],
    )
    def test_bad_files_are_named(self, tmp_path: Path, predictions: Any, message: str) -> None:
        with pytest.raises(DataError, match=message) as error:
            self.scores(tmp_path, predictions)
        assert "predictions.json" in str(error.value)

    def test_the_command_prints_a_table_or_json(self, tmp_path: Path) -> None:
        path = tmp_path / "predictions.json"
        path.write_text('{"01-1": "about 27 days"}')

        table = CliRunner().invoke(metrics, ["squad", str(path), "--builtin"])
        printed = CliRunner().invoke(metrics, ["squad", str(path), "--builtin", "--json"])

        assert "unanswerable" in table.output
        assert json.loads(printed.output)["all"]["exact_match"] > 0


@pytest.fixture(scope="module")
def published() -> Squad:
    """The official development set, where this machine has it."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    place = Path(os.environ.get("EVENHAND_DATA") or beside)
    if not any((place / "squad" / name).is_file() for name in ("dev-v2.0.json", "dev-v2.0.json.gz")):
        pytest.skip(f"no official SQuAD: looked for squad/dev-v2.0.json[.gz] in {place} (EVENHAND_DATA)")
    return Squad(data=str(place))


class TestOfficialData:
    @pytest.mark.parametrize("limit", [35, 100, 1000])
    def test_a_limit_is_spread_over_kinds_and_articles(self, published: Squad, limit: int) -> None:
        check_spread(published, limit, 35)

    def test_right_answers_are_right(self, published: Squad) -> None:
        def right(sample: Sample) -> Record:
            given = Answer(max(sample.target, key=len)) if sample.target else Answer("", details={"abstained": True})
            grade = published.grade(sample, Outcome(given))
            assert isinstance(grade, Grade)
            return Record(sample.id, sample.cluster, "graded", sample.metadata, grade.values)

        records = [right(sample) for sample in published.samples(Selection())]

        assert len(records) == 11_873
        for each in published.metrics():
            if each.name not in ("abstained_has_answer", "refusals"):
                assert value(each.name, records) == 1, each.name
