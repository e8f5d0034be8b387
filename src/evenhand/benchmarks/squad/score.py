"""The official scores of SQuAD v2: the word overlap of an answer with the closest reference answer.

Words are compared in lower case, without ASCII punctuation and without a, an, the. The right answer to an unanswerable
question is the empty text. Exact match and F1 count every question. A refusal, a failure or an answer that could not be
parsed is a missing prediction and counts as wrong; `coverage` is the share of questions with an answer.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

from evenhand.benchmarks.base import Better, Metric, ratio, share_metric
from evenhand.core.types import Record

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
