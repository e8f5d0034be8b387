"""Answers that another tool asked for: the questions of its file, its right answers where it names them.

`evenhand runs import` makes runs of these two. Answers to questions that a benchmark of ours knows become runs of that
benchmark instead, with its scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from evenhand.benchmarks.base import BENCHMARKS, COVERAGE, REFUSALS, Benchmark, Declared, Metric, Selection, graded
from evenhand.core.errors import UsageError
from evenhand.core.types import Answer, Grade, Outcome, Sample, SampleKind, Unscored


@BENCHMARKS.register("imported")
class Imported(Benchmark):
    """Texts that another tool has collected; made by `evenhand runs import`."""

    version: ClassVar[str] = "2"
    kind: ClassVar[SampleKind] = "chat"
    headline: ClassVar[str] = "coverage"
    guardrails: ClassVar[tuple[str, ...]] = ("accuracy", "refusals")

    def samples(self, selection: Selection) -> Iterator[Sample]:
        del selection
        raise UsageError("Imported answers cannot be asked for again; import a file: `evenhand runs import FILE`.")

    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        """A choice is right if it is the target, a text if it contains it; without a target nothing counts."""
        answer = outcome.result
        if not isinstance(answer, Answer) or (sample.choices and answer.choice is None):
            return Unscored("the answer names no option", getattr(answer, "text", ""))
        if sample.target is None:
            return Grade({"correct": None})
        if sample.choices:
            return Grade({"correct": answer.choice == sample.target})
        target = re.escape(str(sample.target).casefold().strip())
        letter = "[0-9A-Za-zÀ-ԯ]"  # of scripts with spaces between words: 4 is not in 14, nor No in know
        whole = rf"(?<!{letter})(?<!\d[.,]){target}(?!{letter}|[.,]\d)"
        return Grade({"correct": re.search(whole, answer.text.casefold()) is not None})

    def metrics(self) -> Sequence[Metric]:
        return (Declared("imported")("accuracy", graded("correct")), COVERAGE, REFUSALS)


@BENCHMARKS.register("imported_choices")
class ImportedChoices(Imported):
    """Multiple choice that another tool has asked; made by `evenhand runs import`."""

    kind: ClassVar[SampleKind] = "choice"
    headline: ClassVar[str] = "accuracy"
    guardrails: ClassVar[tuple[str, ...]] = ("coverage", "refusals")
