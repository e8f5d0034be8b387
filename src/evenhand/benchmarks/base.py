"""The Benchmark interface: where samples come from, how outcomes are graded, and what is counted.

A metric is two small functions: what one record, or all records of a cluster, add to a vector of sums, and the value
of such sums. From that alone the study computes estimates, intervals, breakdowns and paired differences, for every
benchmark alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from evenhand import options
from evenhand.options import Options_co
from evenhand.registry import Registry, class_fault
from evenhand.types import Grade, Outcome, Record, Sample, SampleKind, Unscored

Better = Literal["higher", "lower", "zero"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a benchmark, defined on sums over records."""

    name: str
    title: str
    count: Callable[[Record], Sequence[float] | None]
    """What one record adds to the sums; None when the record does not belong to this metric."""
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    """Sums of shape (…, k) → values of shape (…); NaN where undefined."""
    better: Better | None = None
    share: bool = False
    """The sums are (successes, trials): a Wilson interval applies."""
    scale: float = 1.0
    """Factor for display: 100 for percentages and for bias scores."""
    chance: float | None = None
    """What guessing gets; an arm that is not above it has not understood the task."""
    gather: Callable[[Sequence[Record]], Sequence[float] | None] | None = None
    """What a cluster adds, computed on its records at once; `count` then only tells which records belong, by not
    giving None. The sample ids of a cluster must follow each other when sorted."""

    @property
    def percent(self) -> bool:
        """Whether its values are percentages: ratios from 0 to 1, shown from 0 to 100."""
        return self.statistic is ratio and self.scale == 100.0


def share_metric(
    name: str,
    title: str,
    success: Callable[[Record], bool | None],
    better: Better | None = None,
    chance: float | None = None,
) -> Metric:
    """A metric that is a share of records; `success` gives None for records that do not belong to it."""

    def count(record: Record) -> tuple[float, float] | None:
        value = success(record)
        return None if value is None else (float(value), 1.0)

    return Metric(name, title, count, ratio, better, share=True, scale=100.0, chance=chance)


def ratio(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """First sum over second; NaN where the second is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], np.nan)


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


Lookup = Callable[[str], EstimateLike | None]
"""A metric's name → its estimate in one arm."""


class Audit(Protocol):
    """What a benchmark finds in all records of an arm at once."""

    @property
    def sentences(self) -> Sequence[str]:
        """The findings in words, the most important first."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Which samples to take: `limit` in all, spread evenly over the benchmark's strata by `seed`."""

    limit: int | None = None
    seed: int = 0


class Benchmark(ABC, Generic[Options_co]):
    """Samples + grade + metrics. A benchmark is made with its options by name, and finds them in `self.options`.

    Optional declarations: `report_sections`, `position_advice`, and the methods from `confusion` on.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    kind: ClassVar[SampleKind]
    headline: ClassVar[str]
    """The metric that the verdict is about."""
    guardrails: ClassVar[tuple[str, ...]] = ()
    """Metrics that must be read next to the headline."""
    followed: ClassVar[tuple[str, ...]] = ()
    """Metrics that are also shown after each iteration, where a method has them."""
    group_key: ClassVar[str] = "group"
    """The metadata key whose values break the metrics down."""
    scorers: ClassVar[tuple[str, ...]] = ()
    """The scorers whose scores of the answer's text join the grade, unless the plan names others."""
    report_sections: ClassVar[tuple[str, ...]] = ()
    """Sections that its reports have besides those of every report, by their names in `evenhand.reports.sections`."""
    position_advice: ClassVar[str] = ""
    """What a strong preference for a position means and what helps, as the end of the warning about it."""
    Options: ClassVar[type[options.Options]] = options.Options
    """The options that it takes."""

    def __init__(self, **given: Any) -> None:
        self.options = cast(Options_co, self.Options.parse(f"benchmark {self.name}", given))

    @abstractmethod
    def samples(self, selection: Selection) -> Iterator[Sample]:
        """The selected samples, streamed, in an order that depends on the selection alone."""

    @abstractmethod
    def grade(self, sample: Sample, outcome: Outcome) -> Grade | Unscored:
        """The verdict on an outcome whose result is an Answer; refusals and failures never get here."""

    @abstractmethod
    def metrics(self) -> Sequence[Metric]:
        """What is counted."""

    def confusion(self, record: Record) -> tuple[str, str] | None:
        """(expected kind of answer, kind given), where the benchmark has such kinds."""
        del record
        return None

    def caveats(self) -> Sequence[str]:
        """What a reader must know before believing the numbers, each as a sentence without its full stop."""
        return ()

    def warnings(self, estimate: Lookup) -> Sequence[str]:
        """What the estimates of one arm warn of, each as a sentence that follows the arm's name."""
        del estimate
        return ()

    def audit(self, records: Sequence[Record]) -> Audit | None:
        """What all records of one arm show at once; a study keeps them in memory only if this is overridden."""
        del records
        return None

    def over_corrections(self, before: Audit, after: Audit) -> Sequence[str]:
        """What a mitigation (`after`) turned around, by the audits of an arm without it and with it, in sentences."""
        del before, after
        return ()

    def fingerprint(self) -> Mapping[str, Any]:
        """What identifies the data beyond the name (source, hashes, options)."""
        return {"name": self.name, "version": self.version}


BENCHMARKS: Registry[type[Benchmark]] = Registry(
    "benchmark",
    package="evenhand.benchmarks",
    fault=lambda made: class_fault(made, Benchmark, "name", "version", "kind", "headline"),
)


def load_benchmark(name: str, **given: Any) -> Benchmark:
    """The benchmark called `name` with the given options."""
    return BENCHMARKS.get(name)(**given)
