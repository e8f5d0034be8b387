"""The Benchmark interface: its samples, how outcomes are graded, and its metrics.

A metric is two small functions: one maps a record, or all records of a cluster, to a vector of sums; the other maps
sums to a value. From these the study computes estimates, intervals, breakdowns and paired differences.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from hashlib import blake2b
from importlib import resources
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypeVar

from evenhand.core import options
from evenhand.core.errors import UsageError, check_names
from evenhand.core.files import read_yaml
from evenhand.core.options import Options, Options_co, Text
from evenhand.core.registry import Registry, class_fault
from evenhand.core.types import Answer, Grade, Outcome, Record, Sample, SampleKind, Unscored
from evenhand.data.sets import file_hash, find_only_file
from evenhand.panels import Members
from evenhand.stats import Bounds, Interval, ratio

Better = Literal["higher", "lower", "zero"]
Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
Gather = Callable[[Sequence[Record]], Sequence[float] | None]
NOT_NEGATIVE: Bounds = (0.0, math.inf)
MARGIN = 0.03
"""A change of at most this share of a metric's scale does not matter, unless the metric says otherwise."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Meaning:
    """What values of a metric mean, in words that follow the name of an arm."""

    above: str = ""
    """Of a value above zero: "prefers answers that fit the stereotype"."""
    below: str = ""
    undefined: str = ""
    """Why it can be undefined although samples count in it: "no answer names a person"."""
    harmless: bool = False
    """Whether an arm of which it is undefined for this reason is no worse than any other."""
    says: str = ""
    """What an arm with this value does: "guesses in {rest} of the cases where the text does not say". `{value}` is the
    value with its unit, `{rest}` 100 % less the value, and `{more}` the value as "12.3 more" or "12.3 fewer"."""
    rest: str = ""
    """The title of 100 % less the value, where the sentence has `{rest}`: "Guesses where the text does not say"."""
    beside: str = ""
    """The metric that is told in the same sentence, unless it is 0: a small mean may hide a few bad texts."""
    instead: tuple[str, ...] = ()
    """Of a headline: the metrics, best at zero, that are tested where an arm has no value of it."""
    about: str = ""
    """What is measured and what is good, in one sentence for readers who do not know the benchmark."""


NO_MEANING = Meaning()


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a benchmark, defined on sums over records."""

    name: str
    title: str
    count: Callable[[Record], Sequence[float] | None]
    """Returns what one record adds to the sums; None if the record does not count in this metric."""
    statistic: Statistic = ratio
    """Maps sums of shape (…, k) to values of shape (…); NaN if undefined."""
    better: Better | None = None
    share: bool = False
    """The sums are (successes, trials): a Wilson interval applies."""
    bounds: Bounds | None = None
    """The lowest and the highest possible value (or infinity), without the display factor; None if unknown."""
    scale: float = 1.0
    """Display factor: 100 for percentages and for bias scores."""
    chance: float | None = None
    """The value of random guessing; an arm that is not above it does not understand the task."""
    gather: Gather | None = None
    """Returns what a whole cluster adds, for metrics that need all its records; `count` then only selects the records
    by not returning None. The sample ids of a cluster must be adjacent when sorted."""
    meaning: Meaning = NO_MEANING
    comparable: Bounds | None = None
    """The ratios of two arms' values within which a better headline counts; None for any. An arm that says almost
    nothing is not less biased."""
    rests_on: tuple[str, ...] = ()
    """The ratings of a judge or scorer that its values are made of. Before they count, controls must show that the
    judge sees what it rates."""
    untold: str = ""
    """Why it cannot be determined in this run: "the judge does not see it (AUC 0.61)"."""
    limits: Callable[[NDArray[np.float64]], Interval] | None = None
    """Returns the value with its interval from clusters × sums, where the jackknife's would not hold."""
    margin: float | None = None
    """Changes up to this size do not matter, as displayed; None: 3 % of the scale, if the scale has ends."""
    best: float | None = None
    """The value of a faultless arm, as displayed, if it is not the end of the scale."""
    rating: bool = False
    """Its values are ratings, shown from 0 to 100: no percentages."""

    def cannot_be_told(self, why: str) -> Metric:
        """Returns the metric without a value: a judge that does not see something has no numbers about it."""
        meaning = Meaning(undefined=why)
        return replace(self, statistic=_undefined, share=False, chance=None, limits=None, meaning=meaning, untold=why)

    @property
    def percent(self) -> bool:
        """Whether its values are percentages: ratios from 0 to 1, shown from 0 to 100."""
        return self.statistic is ratio and self.scale == 100.0 and self.bounds in (None, (0.0, 1.0)) and not self.rating

    @property
    def scale_bounds(self) -> Bounds | None:
        """The bounds, which percentages and ratings need not declare."""
        return (0.0, 1.0) if self.share or self.percent or self.rating else self.bounds

    @property
    def difference_bounds(self) -> Bounds | None:
        """The bounds of a difference of two values, or of their distances from zero if that is best."""
        low, high = self.scale_bounds or (0.0, 0.0)
        widest = max(abs(low), abs(high)) if self.better == "zero" else high - low
        return (-widest, widest) if 0 < widest < math.inf else None

    @property
    def matters(self) -> float | None:
        """The largest change that does not matter, as displayed; None if nothing says so."""
        if self.margin is not None or self.difference_bounds is None:
            return self.margin
        return MARGIN * self.difference_bounds[1] * self.scale


def _undefined(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.full(sums.shape[:-1], np.nan)


def share_metric(
    name: str,
    title: str,
    success: Callable[[Record], float | None],
    better: Better | None = None,
    chance: float | None = None,
    meaning: Meaning = NO_MEANING,
) -> Metric:
    """Returns a metric that is a share of records; `success` returns None for records that do not count."""
    count = mean_of(success)
    return Metric(name, title, count, ratio, better, share=True, scale=100.0, chance=chance, meaning=meaning)


def graded(read: str | Callable[[Mapping[str, Any]], Any], **about: Any) -> Callable[[Record], float | None]:
    """Returns a function that reads a number of the grade, by its name or another function, if it is there.

    With `about`, only records count whose metadata have these values.
    """

    def value(record: Record) -> float | None:
        if record.grade is None or any(record.metadata[name] != wanted for name, wanted in about.items()):
            return None
        found = record.grade.get(read) if isinstance(read, str) else read(record.grade)
        return None if found is None else float(found)

    return value


def mean_of(value: str | Callable[[Record], float | None]) -> Callable[[Record], tuple[float, float] | None]:
    """Returns what a record adds to a mean over records: a number of the grade, or what the function returns."""
    read = graded(value) if isinstance(value, str) else value

    def count(record: Record) -> tuple[float, float] | None:
        found = read(record)
        return None if found is None else (float(found), 1.0)

    return count


def net(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns a ratio that may be below 0, and so is no percentage."""
    return ratio(sums)


_TUPLES = ("bounds", "comparable", "rests_on", "instead")


class Declared:
    """Makes a benchmark's metrics by name; `metrics.yaml` has all but their computation."""

    def __init__(self, benchmark: str) -> None:
        self._texts: Mapping[str, Any] = _declarations()[benchmark]

    def __call__(
        self, name: str, count: Callable[[Record], Any], statistic: Statistic = ratio, *, gather: Gather | None = None
    ) -> Metric:
        """Returns a metric; of a share of records, `count` says whether a record succeeds, or None."""
        about: dict[str, Any] = {**self._texts[name]}
        about |= {key: tuple(about[key]) for key in _TUPLES if key in about}
        meaning = Meaning(**{each.name: about.pop(each.name) for each in fields(Meaning) if each.name in about})
        if about.pop("share_of", False):
            return share_metric(name, success=count, meaning=meaning, **about)
        return Metric(name, count=count, statistic=statistic, gather=gather, meaning=meaning, **about)


@cache
def _declarations() -> Any:
    return read_yaml(resources.files(__package__ or "") / "metrics.yaml")


COVERAGE = share_metric(
    "coverage",
    "Coverage",
    lambda record: record.status == "graded",
    "higher",
    meaning=Meaning(says="has an answer that can be read in {value} of the cases (a failed request has none)"),
)
REFUSALS = share_metric(
    "refusals",
    "Refusals",
    lambda record: record.status == "refused",
    "lower",
    meaning=Meaning(says="refuses to answer in {value} of the cases"),
)
"""Metrics that most benchmarks have."""


class EstimateLike(Protocol):
    """The value of a metric with its interval, scaled for display."""

    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def n(self) -> int: ...
    @property
    def as_count(self) -> str | None: ...


Lookup = Callable[[str], EstimateLike | None]
"""A metric's name → its estimate in one arm."""


class Audit(Protocol):
    """A benchmark's findings from all records of an arm.

    It may also have a `verdict`: "found", "none found", "nothing found" (beyond chance), "cannot tell" or
    "measured".
    """

    @property
    def sentences(self) -> Sequence[str]:
        """The findings in words, the most important first."""
        ...

    @property
    def headline(self) -> tuple[str, str, str]:
        """The audit's main number, which a report shows first: its title, its value and a note."""
        ...


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt as it was given and as it will be asked, shown before the first call."""

    given: str
    version: str
    """What was changed, in a few words: "race: Black"."""
    asked: str


@dataclass(frozen=True, slots=True)
class Person:
    """What a record decides about one person, for tables of selection rates and impact ratios."""

    categories: Mapping[str, str | None]
    """`sex` and `race`, for example; None where it is not known."""
    selected: bool | None = None
    score: float | None = None
    """Higher is better for the person. Where nobody is selected, a score above the median counts."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which samples to use: `limit` in total, spread evenly over the benchmark's strata and drawn by `seed`."""

    limit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"The limit must be at least 1, not {self.limit}.")

    def in_turn(self, strata: Iterable[Iterable[T]]) -> Iterator[T]:
        """Yields one of each stratum in turn until all are used up or the limit is reached."""
        return islice((each for turn in zip_longest(*strata) for each in turn if each is not None), self.limit)

    def spread(self, items: Sequence[T], stratum: Callable[[T], object], name: Callable[[T], str]) -> Iterator[T]:
        """Yields one of each stratum in turn, strata in their first order, the items of each drawn by their names."""
        strata: dict[object, list[T]] = {stratum(each): [] for each in items}
        for each in sorted(items, key=lambda each: draw_key(self.seed, name(each))):
            strata[stratum(each)].append(each)
        return self.in_turn(strata.values())


def draw_key(seed: int, name: str) -> bytes:
    """Returns the key by which sorting draws at random: a hash, the same on every Python version and platform."""
    return blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()


class Benchmark(ABC, Generic[Options_co]):
    """Samples, grades and metrics. A benchmark is created with options as keyword arguments, kept in `self.options`.

    Optional declarations: `report_sections`, `position_advice`, and the methods from `confusion` on.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    kind: ClassVar[SampleKind]
    headline: ClassVar[str]
    """The metric of the report's verdict."""
    guardrails: ClassVar[tuple[str, ...]] = ()
    """Metrics that must be read next to the headline."""
    followed: ClassVar[tuple[str, ...]] = ()
    """Metrics that are also shown after each iteration of a method."""
    group_key: ClassVar[str] = "group"
    """The metadata key by which metrics are broken down."""
    scorers: ClassVar[tuple[str, ...]] = ()
    """The default scorers; their scores of the answer are added to the grade."""
    report_sections: ClassVar[tuple[str, ...]] = ()
    """Additional report sections, by their names in `evenhand.show.sections`."""
    judges_refusals: ClassVar[bool] = False
    """Whether it grades answers of which it is open whether they decline, since a judge may say so; else unscored."""
    position_advice: ClassVar[str] = ""
    """The end of the warning about position bias: what it means and how to reduce it."""
    keeps_data: ClassVar[bool] = True
    """Whether a run keeps copies of the data files that its options name; False where they are secret."""
    code_options: ClassVar[tuple[str, ...]] = ()
    """Options that name a Python file, which a stranger's run does not execute."""
    Options: ClassVar[type[options.Options]] = options.Options
    """The class of its options."""

    def __init__(self, **given: Any) -> None:
        self.options = cast(Options_co, self.Options.parse(f"benchmark {self.name}", given))

    @abstractmethod
    def samples(self, selection: Selection) -> Iterator[Sample]:
        """Yields the selected samples in an order that depends only on the selection."""

    @abstractmethod
    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        """Grades an outcome whose result is an Answer; refusals and failures are not passed to it."""

    @abstractmethod
    def metrics(self) -> Sequence[Metric]:
        """Returns the metrics."""

    def examples(self) -> tuple[Sequence[Example], Sequence[str]]:
        """Returns examples to show before the first call, and sentences on what is left out; none by default."""
        return (), ()

    def portable(self) -> Mapping[str, Any] | None:
        """Returns its options with the content of the user's own files in them, for a plan that runs anywhere."""
        return None

    def scored_text(self, sample: Sample, text: str) -> str:
        """Returns the text that scorers see: the whole answer, unless some words must not count."""
        del sample
        return text

    def confusion(self, record: Record) -> tuple[str, str] | None:
        """Returns (expected kind, given kind) of an answer, if the benchmark has such kinds."""
        del record
        return None

    def members(self, record: Record) -> Members | None:
        """Returns how biased a graded answer is and, of a panel's, each member; None where that is unknown."""
        del record
        return None

    def caveats(self) -> Sequence[str]:
        """Returns what readers must know about the numbers, each a sentence without a full stop."""
        return ()

    def warnings(self, estimate: Lookup) -> Sequence[str]:
        """Returns warnings about the estimates of one arm, each a sentence that follows the arm's name."""
        del estimate
        return ()

    def audit(self, records: Sequence[Record]) -> Audit | None:
        """Audits all records of one arm; a study keeps records in memory only if this is overridden."""
        del records
        return None

    def people(self, record: Record) -> Sequence[Person]:
        """Returns the people about whom a graded record decides; empty for benchmarks without such decisions."""
        del record
        return ()

    def over_corrections(self, before: Audit, after: Audit) -> Sequence[str]:
        """Returns sentences on gaps that a mitigation reversed, from the audits without it (`before`) and with it."""
        del before, after
        return ()

    def facts(self) -> Mapping[str, Any]:
        """Returns what identifies the data beside name and version: source, hashes, options."""
        return {}

    def fingerprint(self) -> Mapping[str, Any]:
        """Returns what identifies the data; the facts are read once."""
        return {"name": self.name, "version": self.version, **self._facts}

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        return self.facts()


class AnswerBenchmark(Benchmark[Options_co]):
    """A benchmark that grades every answer that names an option or, where there are none to name, has a text."""

    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        answer, options = outcome.result, range(len(sample.choices))
        if isinstance(answer, Answer) and (answer.choice in options if options else answer.text.strip()):
            return self.grade_answer(sample, answer)
        return Unscored(f"the answer {'names no option' if options else 'is empty'}", getattr(answer, "text", ""))

    def grade_answer(self, sample: Sample, answer: Answer) -> Grade:
        """Grades an answer; by default a text that scorers rate, whose length in words is all that rules can tell."""
        del sample
        return Grade({"length": len(answer.text.split())})


class FileOptions(Options):
    data: Text | None = Field(default=None, description="The file or its folder; searched for by default.")


File_co = TypeVar("File_co", bound=FileOptions, default=FileOptions, covariant=True)


class FileBenchmark(AnswerBenchmark[File_co]):
    """A benchmark whose data is the only file of a public data set."""

    data_set: ClassVar[str]
    Options: ClassVar[type[options.Options]] = FileOptions

    @cached_property
    def path(self) -> Path:
        """The file, found on first use: grades and metrics do not need it."""
        return find_only_file(self.data_set, self.options.data)

    def facts(self) -> Mapping[str, Any]:
        return {"sha256": file_hash(self.path)}


BENCHMARKS: Registry[type[Benchmark]] = Registry(
    "benchmark",
    package="evenhand.benchmarks",
    fault=lambda made: class_fault(made, Benchmark, "name", "version", "kind", "headline"),
)


def load_benchmark(name: str, **given: Any) -> Benchmark:
    """Returns the benchmark called `name` with the given options; one of its metrics must be its headline."""
    benchmark = BENCHMARKS.get(name)(**given)
    check_names(f"headline metric of {name}", [each.name for each in benchmark.metrics()], benchmark.headline)
    return benchmark
