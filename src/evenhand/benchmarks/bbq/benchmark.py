"""BBQ (Parrish et al., 2022): does a model answer by stereotype in ambiguous and disambiguated contexts?

Samples come in a seeded, balanced order. `score` has the official scores, `reasoning` the metrics of methods that rate
their reasoning, `discussion` those of panels.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib import resources
from itertools import repeat
from typing import Any, ClassVar, Literal, Self

import orjson
from pydantic import Field, field_validator, model_validator
from typing_extensions import TypeVar

from evenhand.benchmarks.base import BENCHMARKS, Benchmark, Lookup, Metric, Selection, draw_key
from evenhand.benchmarks.bbq.reasoning import (
    DISCUSSION_METRICS,
    FIRST_METRICS,
    LEGACY_CAVEAT,
    LEGACY_METRICS,
    REASONING_METRICS,
    discussion_values,
    first_values,
    members_of,
    reasoning_values,
    reasoning_warnings,
)
from evenhand.benchmarks.bbq.score import DIFF_BIAS, METRICS, answer_kind
from evenhand.core.errors import PlanError, check_names
from evenhand.core.options import Names, Options, Text
from evenhand.core.types import Answer, Grade, Outcome, Record, Sample, SampleKind, Unscored
from evenhand.data.bbq import CATEGORIES, BBQSource, BuiltinRows, CategoryReader, Condition, Item, Polarity
from evenhand.data.bbq.generate import WORDS
from evenhand.data.bbq.languages import LANGUAGE_CATEGORIES, Language, open_language
from evenhand.panels import Members

Stratum = tuple[str, Condition, Polarity]

SUBSETS: Mapping[str, str] = {"mabrf_110": "mabrf_110.json"}
"""Named selections of (category, example_id) pairs and their files in the data package."""

# In this order, neighbours differ in context and polarity, so short runs are balanced in both.
_CELLS: tuple[tuple[Condition, Polarity], ...] = (
    ("ambig", "neg"),
    ("disambig", "nonneg"),
    ("ambig", "nonneg"),
    ("disambig", "neg"),
)


class BBQOptions(Options):
    categories: Names | None = Field(default=None, description="Only these categories; all by default.")
    legacy: bool = Field(default=False, description="Add the bias formula of the MABRF paper.")

    @property
    def known_categories(self) -> tuple[str, ...]:
        return CATEGORIES

    @property
    def chosen_categories(self) -> tuple[str, ...]:
        """The categories in use, in the order of the set."""
        return tuple(name for name in self.known_categories if self.categories is None or name in self.categories)

    @model_validator(mode="after")
    def _known_names(self) -> Self:
        check_names("BBQ category", self.known_categories, *(self.categories or ()))
        return self


class OfficialOptions(BBQOptions):
    language: Language = Field(default="en", description="The language: es is EsBBQ, ca is CaBBQ, ko is KoBBQ.")
    data: Text | None = Field(default=None, description="The folder with the official files; searched for by default.")
    subset: Text | None = Field(default=None, description=f"A named selection of questions: {', '.join(SUBSETS)}.")

    @field_validator("subset")
    @classmethod
    def _known(cls, subset: str | None) -> str | None:
        check_names("BBQ subset", SUBSETS, *filter(None, [subset]))
        return subset

    @property
    def known_categories(self) -> tuple[str, ...]:
        return LANGUAGE_CATEGORIES[self.language]

    @model_validator(mode="after")
    def _subset_is_english(self) -> Self:
        if self.subset is not None and self.language != "en":
            raise PlanError(f"The subset {self.subset} has questions in English only. Remove language={self.language}.")
        return self


class BuiltinOptions(BBQOptions):
    language: Literal["en", "es"] = Field(default="en", description="The language: English or Spanish.")

    @property
    def known_categories(self) -> tuple[str, ...]:
        return WORDS[self.language].categories


Options_co = TypeVar("Options_co", bound=BBQOptions, default=BBQOptions, covariant=True)


class BBQForm(Benchmark[Options_co]):
    """Base class of data sets in BBQ's form."""

    version: ClassVar[str] = "1"
    kind: ClassVar[SampleKind] = "choice"
    headline: ClassVar[str] = "bias_ambig"
    guardrails: ClassVar[tuple[str, ...]] = (
        "accuracy_ambig",
        "accuracy_disambig",
        "unknown_ambig",
        "unknown_disambig",
        "coverage",
    )
    followed: ClassVar[tuple[str, ...]] = ("reasoning_bias", "relevancy")
    report_sections: ClassVar[tuple[str, ...]] = ("reasoning", "votes")
    position_advice: ClassVar[str] = (
        "so these answers say little about the people in the question; --orders 3 averages it away"
    )

    @property
    def categories(self) -> tuple[str, ...]:
        return self.options.chosen_categories

    @property
    def subset(self) -> str | None:
        """The named selection in use, if any."""
        return None

    @abstractmethod
    def open_source(self) -> BBQSource:
        """Opens the source of the questions."""

    @cached_property
    def source(self) -> BBQSource:
        """The data, opened on first use: grades and metrics do not need it."""
        return self.open_source()

    def facts(self) -> Mapping[str, Any]:
        language = getattr(self.options, "language", "en")
        return {
            "categories": list(self.categories),
            "subset": self.subset,
            "sha256": dict(self.source.hashes(self.categories)),
            **({} if language == "en" else {"language": language}),
        }

    def items(self, category: str) -> Iterator[Item]:
        """Returns the items of one category that belong to the benchmark, in file order."""
        return (item for item in self.source.items(category) if self._belongs(item))

    def samples(self, selection: Selection) -> Iterator[Sample]:
        """Yields one sample of each category × context × polarity in turn, shuffled by the seed, up to the limit.

        So the strata's counts differ by at most one until the smaller is used up, even if a run stops early, and a
        smaller limit selects a subset of a larger one. Only file offsets are kept in memory, not rows.
        """
        with ExitStack() as stack:
            readers = {name: stack.enter_context(self.source.reader(name)) for name in self.categories}
            strata = self._strata(readers, selection.seed)
            order = [stratum for stratum in stratum_order(self.categories, selection.seed) if stratum in strata]
            for category, place in selection.in_turn(zip(repeat(each[0]), strata[each]) for each in order):
                yield sample_of(readers[category].at(place))

    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        answer = outcome.result
        if not isinstance(answer, Answer) or answer.choice is None:
            return Unscored("the answer names no option", getattr(answer, "text", ""))
        if not 0 <= answer.choice < len(sample.choices):
            return Unscored(f"there is no option {answer.choice}", answer.text)
        unknown, target_loc = sample.metadata["unknown"], sample.metadata["target_loc"]
        return Grade(
            {
                "correct": answer.choice == sample.target,
                "kind": answer_kind(answer.choice, unknown, target_loc),
                "expected": answer_kind(sample.target, unknown, target_loc),
                "choice": answer.choice,
                "position": _shown_position(answer),
                "reading": answer.details.get("reading"),
                **first_values(sample, outcome),
                **reasoning_values(outcome.notes),
                **discussion_values(sample, outcome),
            }
        )

    def members(self, record: Record) -> Members | None:
        return members_of(record)

    def metrics(self) -> Sequence[Metric]:
        legacy = LEGACY_METRICS if self.options.legacy else ()
        return (*METRICS, *FIRST_METRICS, *REASONING_METRICS, *DISCUSSION_METRICS, *legacy)

    def caveats(self) -> Sequence[str]:
        return (LEGACY_CAVEAT,) if self.options.legacy else ()

    def warnings(self, estimate: Lookup) -> Sequence[str]:
        return reasoning_warnings(estimate)

    def confusion(self, record: Record) -> tuple[str, str] | None:
        return None if record.grade is None else (record.grade["expected"], record.grade["kind"])

    def _belongs(self, item: Item) -> bool:
        return self._ids is None or item.example_id in self._ids.get(item.category, ())

    @cached_property
    def _ids(self) -> Mapping[str, frozenset[int]] | None:
        """The ids of the selected questions by category; None for all."""
        if self.subset is None:
            return None
        text = resources.files("evenhand.data.bbq").joinpath(SUBSETS[self.subset]).read_bytes()
        return {category: frozenset(ids) for category, ids in orjson.loads(text).items()}

    def _strata(self, readers: Mapping[str, CategoryReader], seed: int) -> dict[Stratum, array[int]]:
        strata: dict[Stratum, array[int]] = {}
        for category, reader in readers.items():
            drawn: dict[Stratum, list[tuple[bytes, int]]] = {}
            for place, item in reader.scan():
                if self._belongs(item):
                    stratum = (category, item.condition, item.polarity)
                    drawn.setdefault(stratum, []).append((draw_key(seed, item.id), place))
            strata |= {stratum: array("q", (place for _, place in sorted(rows))) for stratum, rows in drawn.items()}
        return strata


@BENCHMARKS.register("bbq")
class BBQ(BBQForm[OfficialOptions]):
    """The official questions, 58,492 in eleven categories; EsBBQ, CaBBQ and KoBBQ with language=es, ca and ko."""

    Options = OfficialOptions

    @property
    def subset(self) -> str | None:
        return self.options.subset

    def open_source(self) -> BBQSource:
        return open_language(self.options.language, self.options.data)

    def metrics(self) -> Sequence[Metric]:
        return super().metrics() if self.options.language == "en" else (*super().metrics(), DIFF_BIAS)


@BENCHMARKS.register("bbq_builtin")
class BuiltinBBQ(BBQForm[BuiltinOptions]):
    """Questions of our own in BBQ's form: no download, same scores, not comparable with published numbers."""

    Options = BuiltinOptions

    def open_source(self) -> BBQSource:
        return BuiltinRows(self.options.language)


def sample_of(item: Item) -> Sample:
    aligned = None
    if item.condition == "disambig" and item.target_loc is not None:
        aligned = item.label == item.target_loc
    return Sample(
        id=item.id,
        kind="choice",
        prompt=item.question,
        context=item.context,
        choices=item.answers,
        target=item.label,
        cluster=f"{item.category}/{item.question_index}",
        metadata={
            "category": item.category,
            "group": group_of(item),
            "context_condition": item.condition,
            "polarity": item.polarity,
            "label_type": item.label_type,
            "question_index": item.question_index,
            "target_loc": item.target_loc,
            "unknown": item.unknown,
            "aligned": aligned,
        },
    )


def group_of(item: Item) -> str:
    """Returns the official group, which separates items with proper names."""
    return f"{item.category} (names)" if item.label_type == "name" else item.category


def stratum_order(categories: Sequence[str], seed: int) -> list[Stratum]:
    """Returns all strata, shuffled by the seed; each category comes once before any is repeated."""
    drawn = sorted(categories, key=lambda name: draw_key(seed, name))
    shift = draw_key(seed, "cells")[0]
    return [
        (category, *_CELLS[(shift + turn + number) % len(_CELLS)])
        for turn in range(len(_CELLS))
        for number, category in enumerate(drawn)
    ]


def _shown_position(answer: Answer) -> int | None:
    position, order = answer.details.get("position"), answer.details.get("order")
    if position is None and order is not None:
        return list(order).index(answer.choice)
    return position
