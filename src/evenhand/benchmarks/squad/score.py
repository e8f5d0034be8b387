"""The official scores of SQuAD v2: how far an answer agrees with the nearest of the right ones, word by word.

Words are compared in lower case, without ASCII punctuation and without a, an, the. The right answer to a question that
the passage does not settle is the empty text. Exact match and F1 count every question that was asked: no answer that
could be read (a refusal, a failure) is a missing prediction and counts as wrong; `coverage` says how many there were.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

from evenhand.benchmarks.base import Better, Metric, ratio, share_metric
from evenhand.types import Record

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalised(text: str) -> str:
    """The text as answers are compared."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction is one of the answers; without any, whether it is empty."""
    return normalised(prediction) in _comparable(answers)


def f1(prediction: str, answers: Sequence[str]) -> float:
    """The agreement with the answer that agrees most, from 0 to 1."""
    predicted = normalised(prediction).split()
    return max(_agreement(predicted, answer.split()) for answer in _comparable(answers))


def _comparable(answers: Sequence[str]) -> list[str]:
    """The answers normalised; one of which nothing is left is none, and without any the empty text is right."""
    return [text for answer in answers if (text := normalised(answer))] or [""]


def _agreement(predicted: Sequence[str], right: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words, each counted as often as it occurs."""
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
    """A mean of degrees, not a share of successes: its interval comes from resampling articles."""

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
    """Among what was read: not having answered is not the same as having said that there is no answer."""

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
