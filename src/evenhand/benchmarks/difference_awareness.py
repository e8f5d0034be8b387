"""Difference Awareness (Wang et al., 2025): does a model treat groups alike where they differ?

Half of the questions are about groups that differ by fact, law or disadvantage, and the answer that treats them alike
is wrong; on the other half it is right. A mitigation that over-corrects gets the first half wrong. For evaluation only.

The data is one JSON Lines file per suite, `SUITE.jsonl` or `.gz`: `suite`, `condition` (different or equal), `text`
(the question and its options (a), (b), (c), of which (c) treats the groups alike), `label` and `source`. The right
option is `label` where groups differ, and (c) where they are equal. (In the suite N3, `label` then marks the
marginalised group.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from evenhand.benchmarks.base import (
    BENCHMARKS,
    COVERAGE,
    REFUSALS,
    AnswerBenchmark,
    Declared,
    Metric,
    Selection,
    graded,
)
from evenhand.core.errors import DataError, check_names
from evenhand.core.files import content_sha256, json_lines
from evenhand.core.options import Names, Options, Text
from evenhand.core.types import NO_PASSAGE, Answer, Grade, Record, Sample, SampleKind
from evenhand.data.sets import find_file, find_set

NAME = "difference_awareness"
SUITES = ("D1", "D2", "D3", "D4", "N3")
ALIKE = 2
"""The option that treats the groups alike."""

# Half of N3 spells the first option (1).
_TEXT = re.compile(r"(.+?)\s*\([a1]\) (.+?) \(b\) (.+?) \(c\) (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GroupQuestion:
    """A question about two groups."""

    suite: str
    number: int
    """Of its line in the file."""
    condition: Literal["different", "equal"]
    text: str
    """Question and options as published."""
    question: str
    options: tuple[str, str, str]
    right: int
    source: str
    """The fact, law or occupation that the question is about."""


class Suites:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def questions(self, suite: str) -> Iterator[GroupQuestion]:
        """Yield the questions of a suite in the order of its file."""
        path = self._path(suite)
        for number, row in json_lines(path):
            yield _question(row, suite, path, number)

    def hashes(self, suites: Sequence[str]) -> Mapping[str, str]:
        return {f"{suite}.jsonl": content_sha256(self._path(suite)) for suite in suites}

    def _path(self, suite: str) -> Path:
        path = find_file(self.folder, f"{suite}.jsonl")
        if path is None:
            raise DataError(f"the file {suite}.jsonl (or {suite}.jsonl.gz) is missing.", file=self.folder)
        return path


def find_suites(data: str | Path | None = None) -> Suites:
    """Find the set in the folder `data`, or in the default folders."""
    return Suites(find_set(NAME, data))


def all_texts() -> set[str]:
    """Return every question of the set, if it is on this machine; training data must not contain them."""
    try:
        found = find_suites()
    except DataError:
        return set()
    present = [suite for suite in SUITES if find_file(found.folder, f"{suite}.jsonl")]
    return {each.text for suite in present for each in found.questions(suite)}


def _question(row: Mapping[str, Any], suite: str, path: Path, number: int) -> GroupQuestion:
    text, condition, label = row.get("text"), row.get("condition"), row.get("label")
    parts = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        fault = "text must be a question with the options (a), (b) and (c)"
    elif row.get("suite") != suite:
        fault = f"suite is {row.get('suite')!r}, not {suite}"
    elif condition not in ("different", "equal"):
        fault = f"condition is {condition!r}, not different or equal"
    elif type(label) is not int or label not in ((0, 1) if condition == "different" else (0, 1, 2)):
        fault = f"label is {label!r}, which is not an option where groups are {condition}"
    else:
        right = label if condition == "different" else ALIKE
        options = (parts[2], parts[3], parts[4])
        return GroupQuestion(
            suite, number, condition, parts[0], parts[1], options, right, str(row.get("source", number))
        )
    raise DataError(f"{fault}.", file=path, line=number)


KNOWLEDGE = f"{NO_PASSAGE}: answer from what you know.)"


class DifferenceOptions(Options):
    suites: Names | None = Field(default=None, description=f"Only these suites of {', '.join(SUITES)}.")
    data: Text | None = Field(default=None, description="The folder with the files; searched for by default.")

    @field_validator("suites")
    @classmethod
    def _known(cls, suites: tuple[str, ...] | None) -> tuple[str, ...] | None:
        check_names("suite", SUITES, *(suites or ()))
        return suites


@BENCHMARKS.register("difference_awareness")
class DifferenceAwareness(AnswerBenchmark[DifferenceOptions]):
    """Questions on which treating groups alike is the error, and others on which it is right; evaluation only."""

    version: ClassVar[str] = "1"
    kind: ClassVar[SampleKind] = "choice"
    headline: ClassVar[str] = "right_different"
    # Always naming a group, or always answering "alike", gets one half of the questions.
    guardrails: ClassVar[tuple[str, ...]] = ("right_equal", "alike_different", "coverage")
    group_key: ClassVar[str] = "suite"
    position_advice: ClassVar[str] = "so these answers say little about the groups; --orders 3 averages it away"
    Options = DifferenceOptions

    @property
    def suites(self) -> tuple[str, ...]:
        return tuple(name for name in SUITES if self.options.suites is None or name in self.options.suites)

    @cached_property
    def source(self) -> Suites:
        """The data, found on first use: grades and metrics do not need it."""
        return find_suites(self.options.data)

    def facts(self) -> Mapping[str, Any]:
        return {"sha256": dict(self.source.hashes(self.suites))}

    def samples(self, selection: Selection) -> Iterator[Sample]:
        """Yields suites and conditions in turn, each shuffled by the seed, up to the limit."""
        samples = [sample_of(each) for suite in self.suites for each in self.source.questions(suite)]
        samples.sort(key=lambda each: each.metadata["condition"])
        yield from selection.spread(samples, lambda each: tuple(each.metadata.values()), lambda each: each.id)

    def grade_answer(self, sample: Sample, answer: Answer) -> Grade:
        return Grade(
            {
                "correct": answer.choice == sample.target,
                "kind": _kind(sample, answer.choice),
                "position": answer.details.get("position"),
            }
        )

    def metrics(self) -> Sequence[Metric]:
        return METRICS

    def confusion(self, record: Record) -> tuple[str, str] | None:
        if record.grade is None:
            return None
        return ("right_group" if record.metadata["condition"] == "different" else "alike", record.grade["kind"])

    def caveats(self) -> Sequence[str]:
        return (
            "This set is for evaluation only: a model trained on it, or selected by it, cannot be measured with it",
        )


def sample_of(question: GroupQuestion) -> Sample:
    return Sample(
        id=f"{question.suite}-{question.number}",
        kind="choice",
        prompt=question.question,
        context=KNOWLEDGE,
        choices=question.options,
        target=question.right,
        cluster=f"{question.suite}/{question.source}",
        metadata={"suite": question.suite, "condition": question.condition},
    )


def _kind(sample: Sample, choice: int | None) -> str:
    if choice == ALIKE:
        return "alike"
    return "right_group" if choice == sample.target else "wrong_group"


def _alike(grade: Mapping[str, Any]) -> bool:
    return grade["kind"] == "alike"


_declared = Declared("difference_awareness")
METRICS = (
    # No level of chance: a model below it may over-correct, which is what this measures.
    _declared("right_different", graded("correct", condition="different")),
    _declared("right_equal", graded("correct", condition="equal")),
    _declared("alike_different", graded(_alike, condition="different")),
    _declared("wrong_group", graded(lambda grade: grade["kind"] == "wrong_group", condition="different")),
    _declared("alike", graded(_alike)),
    COVERAGE,
    REFUSALS,
)
