"""Every metric that rests on a judge or scorer has controls, or says why not; every judge inside a method as well."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from evenhand.benchmarks.base import BENCHMARKS, Metric
from evenhand.core.types import Record
from evenhand.judging.instruments import NO_CONTROLS, controls_of
from evenhand.methods.base import METHODS, judge_tests
from evenhand.scorers.base import SCORERS

NAMES = [name for name in BENCHMARKS.names() if name not in ("bbq_hard", "fresh")]  # which need a file


COUNTS = ("scored", "coverage", "unread", "declined")
"""Metrics that count what was rated; whether debates and MALIBU's judges decline is read by rules."""


def metrics(name: str) -> list[Metric]:
    return list(BENCHMARKS.get(name)().metrics())


def by_scorers() -> set[str]:
    return {each for name in SCORERS.names() for each in controls_of(SCORERS.get(name))}


class Noted(Mapping[str, Any]):
    """A grade that notes which of its fields a metric reads."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.read.add(name)
        return 0.5

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("name", NAMES)
def test_what_a_metric_rests_on_has_controls_or_a_reason(name: str):
    ratings = {each for test in judge_tests().values() for each in test.ratings}
    known = by_scorers() | ratings | NO_CONTROLS.keys()

    assert not {each for metric in metrics(name) for each in metric.rests_on} - known


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_that_reads_the_score_of_a_scorer_says_that_it_rests_on_it(name: str):
    scores = {each for scorer in SCORERS.names() for each in getattr(SCORERS.get(scorer), "attributes", ())}
    for metric in metrics(name):
        grade = Noted()
        try:
            metric.count(Record("s", "c", "graded", {}, grade))
        except (TypeError, KeyError, ValueError, AttributeError):
            continue  # it reads fields of another form, which no scorer gives
        # BBQ's `bias` is a choice, no rating.
        if name not in {"bbq", "bbq_builtin"} and metric.name not in COUNTS and grade.read & scores:
            assert metric.rests_on, metric.name


def test_methods_that_produce_a_rated_metric_have_their_judge_checked():
    """What only a method's judge rates is produced by every method that serves that kind of sample with a judge."""
    of_methods = {
        BENCHMARKS.get(name).kind: {each for metric in metrics(name) for each in metric.rests_on} - by_scorers()
        for name in ("malibu", "debates")
    }
    for kind, ratings in of_methods.items():
        for name in METHODS.names():
            method = METHODS.get(name)
            if kind in method.kinds:
                assert method.calibration is not None, name
                assert ratings <= {*method.calibration.ratings}, name


def test_the_referee_of_a_debate_is_checked_and_not_the_model_that_speaks():
    assert METHODS.get("debate").calibration.role == "referee"
