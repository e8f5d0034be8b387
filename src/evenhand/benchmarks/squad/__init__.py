"""SQuAD v2 (Rajpurkar et al., 2018): does a model answer from a passage, and abstain if the passage has no answer?

The method decides what the model sees: the passage, nothing, or search results. The scores are the official ones: the
word overlap of an answer with the closest reference answer. Words are compared in lower case, without ASCII punctuation
and without a, an, the. The right answer to an unanswerable question is the empty text. Exact match and F1 count every
question. A refusal, a failure or an answer that could not be parsed is a missing prediction and counts as wrong;
`coverage` is the share of questions with an answer.
"""

from __future__ import annotations

import re
import string
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, zip_longest
from typing import Any, ClassVar

from pydantic import Field

from evenhand.benchmarks.base import BENCHMARKS, Benchmark, Better, Metric, Selection, draw_key, ratio, share_metric
from evenhand.core.options import Options, Options_co, Text
from evenhand.core.types import Answer, Grade, Outcome, Record, Sample, SampleKind, Unscored
from evenhand.data.squad import BuiltinPassages, Question, Source, find_questions

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalised(text: str) -> str:
    """Normalises a text for comparison."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    """Returns whether the prediction is one of the answers; if there are none, whether it is empty."""
    return normalised(prediction) in _comparable(answers)


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Returns the F1 with the closest answer, from 0 to 1."""
    predicted = normalised(prediction).split()
    return max(_agreement(predicted, answer.split()) for answer in _comparable(answers))


def _comparable(answers: Sequence[str]) -> list[str]:
    """Returns the non-empty normalised answers; if there are none, the empty text is right."""
    return [text for answer in answers if (text := normalised(answer))] or [""]


def _agreement(predicted: Sequence[str], right: Sequence[str]) -> float:
    """Returns the harmonic mean of precision and recall over words, counting repetitions."""
    if not predicted or not right:
        return float(predicted == right)
    shared = (Counter(predicted) & Counter(right)).total()
    return 2 * shared / (len(predicted) + len(right))


Belongs = Callable[[Record], bool]


def _every(record: Record) -> bool:
    del record
    return True


def _answerable(record: Record) -> bool:
    return record.metadata["answerable"]


def _unanswerable(record: Record) -> bool:
    return not record.metadata["answerable"]


def _f1_metric(name: str, title: str, belongs: Belongs) -> Metric:
    """Returns an F1 metric: a mean, not a share of successes, so its interval comes from its spread by article."""

    def count(record: Record) -> tuple[float, float] | None:
        if not belongs(record):
            return None
        return (0.0 if record.grade is None else float(record.grade["f1"]), 1.0)

    return Metric(name, title, count, ratio, "higher", scale=100.0)


def _exact_metric(name: str, title: str, belongs: Belongs) -> Metric:
    def success(record: Record) -> bool | None:
        if not belongs(record):
            return None
        return record.grade is not None and bool(record.grade["exact"])

    return share_metric(name, title, success, "higher")


def _abstention_metric(name: str, title: str, belongs: Belongs, better: Better) -> Metric:
    """Returns an abstention metric over parsed answers only: giving no answer is not the same as abstaining."""

    def success(record: Record) -> bool | None:
        return None if record.grade is None or not belongs(record) else bool(record.grade["abstained"])

    return share_metric(name, title, success, better)


METRICS = (
    _f1_metric("f1", "F1 (unread = 0)", _every),
    _exact_metric("exact_match", "Exact match (unread = 0)", _every),
    _f1_metric("f1_has_answer", "F1, answerable", _answerable),
    _exact_metric("exact_match_has_answer", "Exact match, answerable", _answerable),
    _f1_metric("f1_no_answer", "F1, unanswerable", _unanswerable),
    _exact_metric("exact_match_no_answer", "Exact match, unanswerable", _unanswerable),
    _abstention_metric("abstained_has_answer", "Abstained, answerable", _answerable, "lower"),
    _abstention_metric("abstained_no_answer", "Abstained, unanswerable", _unanswerable, "higher"),
    share_metric("coverage", "Coverage", lambda record: record.status == "graded", "higher"),
    share_metric("refusals", "Refusals", lambda record: record.status == "refused", "lower"),
)


__all__ = ["BuiltinSquad", "Squad", "sample_of"]


class SquadForm(Benchmark[Options_co]):
    """Base class of data sets in SQuAD's form."""

    version: ClassVar[str] = "1"
    kind: ClassVar[SampleKind] = "answer"
    headline: ClassVar[str] = "f1"
    # Half the questions have no answer, so always abstaining gets an F1 of 50; these metrics reveal that.
    guardrails: ClassVar[tuple[str, ...]] = (
        "exact_match",
        "f1_has_answer",
        "f1_no_answer",
        "abstained_has_answer",
        "coverage",
    )

    @abstractmethod
    def open_source(self) -> Source:
        """Opens the source of the questions."""

    @cached_property
    def source(self) -> Source:
        """The data, opened on first use: grades and metrics do not need it."""
        return self.open_source()

    def fingerprint(self) -> Mapping[str, Any]:
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> Mapping[str, Any]:
        return {"name": self.name, "version": self.version, **self.source.facts()}

    def samples(self, selection: Selection) -> Iterator[Sample]:
        """Yields answerable and unanswerable questions in turn, spread over all articles by the seed, up to the limit.

        So the counts of the two kinds differ by at most one until one is used up, even if a run stops early, and a
        smaller limit selects a subset of a larger one.
        """
        questions = list(self.source.questions())
        titles = sorted({each.title for each in questions}, key=lambda title: draw_key(selection.seed, title))
        # Unanswerable questions begin with the other half of the articles, so that short runs cover all articles.
        half = (len(titles) + 1) // 2
        answerable = _spread([each for each in questions if each.answers], titles, selection.seed)
        others = _spread(
            [each for each in questions if not each.answers], titles[half:] + titles[:half], selection.seed
        )
        turns = chain.from_iterable(zip_longest(answerable, others))
        yield from islice((sample_of(each) for each in turns if each is not None), selection.limit)

    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        answer = outcome.result
        if not isinstance(answer, Answer):
            return Unscored("there is no answer")
        # An answer abstains if it is flagged so, whatever its text, or if the official normalisation leaves nothing.
        prediction = "" if answer.details.get("abstained") else answer.text
        abstained = not normalised(prediction)
        exact, agreement = exact_match(prediction, sample.target), f1(prediction, sample.target)
        return Grade(
            {
                "f1": agreement,
                "exact": exact,
                "abstained": abstained,
                "kind": "no_answer" if abstained else "exact_answer" if exact else _inexact(agreement),
                "expected": "exact_answer" if sample.target else "no_answer",
            }
        )

    def metrics(self) -> Sequence[Metric]:
        return METRICS

    def confusion(self, record: Record) -> tuple[str, str] | None:
        return None if record.grade is None else (record.grade["expected"], record.grade["kind"])


class SquadOptions(Options):
    """Options of the official data set."""

    data: Text | None = Field(default=None, description="The folder with dev-v2.0.json, or any file in that form.")


class Squad(SquadForm[SquadOptions]):
    """The official development set: 11,873 questions on 35 articles, half of them without an answer in the passage."""

    name: ClassVar[str] = "squad"
    Options = SquadOptions

    def open_source(self) -> Source:
        return find_questions(self.options.data)


class BuiltinSquad(SquadForm):
    """Questions of our own on twelve passages: no download, same scores, not comparable with published numbers."""

    name: ClassVar[str] = "squad_builtin"

    def open_source(self) -> Source:
        return BuiltinPassages()


# Called directly: as decorators they would hide the classes' attributes from type checkers.
BENCHMARKS.register(Squad.name)(Squad)
BENCHMARKS.register(BuiltinSquad.name)(BuiltinSquad)


def sample_of(question: Question) -> Sample:
    """Returns the question as a sample; an empty target means that the passage has no answer."""
    answerable = bool(question.answers)
    return Sample(
        id=question.id,
        kind="answer",
        prompt=question.text,
        context=question.passage,
        target=list(question.answers),
        cluster=question.title,
        metadata={
            "group": "answerable" if answerable else "unanswerable",
            "answerable": answerable,
            "title": question.title,
        },
    )


def _inexact(agreement: float) -> str:
    return "partial_answer" if agreement > 0 else "wrong_answer"


def _spread(questions: Sequence[Question], titles: Sequence[str], seed: int) -> Iterator[Question]:
    """Yields one question of each article in turn, each article's questions shuffled by the seed."""
    drawn: dict[str, list[Question]] = {title: [] for title in titles}
    for question in sorted(questions, key=lambda each: draw_key(seed, each.id)):
        drawn[question.title].append(question)
    for turn in zip_longest(*drawn.values()):
        yield from (question for question in turn if question is not None)
