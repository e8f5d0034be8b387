"""What a study found, as plain values: the only thing that tables, conclusions and reports read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenhand.benchmarks.base import Audit
from evenhand.runs.plan import ArmKey
from evenhand.types import Status, Usage


@dataclass(frozen=True, slots=True)
class Estimate:
    """One metric of one arm in one group (`all` or a breakdown); value None = undefined. Already scaled."""

    metric: str
    group: str
    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """How to show a metric."""

    name: str
    title: str
    better: str | None
    """`higher`, `lower`, `zero` or None."""
    share: bool
    """A percentage, printed as such, as against a score on a scale of its own."""
    chance: float | None = None
    """What guessing gets, scaled."""


@dataclass(frozen=True, slots=True)
class PositionBias:
    """How often each shown position was chosen; with shuffled options an unbiased reader is uniform."""

    counts: tuple[int, ...]
    p_value: float | None
    distance: float | None
    """Total variation distance from uniform, 0–1."""


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm: one method on one set of models with one seed."""

    id: str
    label: str
    key: ArmKey
    estimates: Sequence[Estimate]
    statuses: Mapping[Status, int]
    pending: int
    """Samples of the plan that have not been run (a stopped run)."""
    reasons: Sequence[tuple[Status, str, int]]
    """Why samples were not graded: (status, reason, count), most frequent first."""
    usage: Mapping[str, Usage]
    """By model role."""
    seconds: float
    """The arm's part of the run's wall time."""
    position: PositionBias | None = None
    confusion: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    """Expected kind of answer → kind given → count."""
    iteration: int | None = None
    """After which iteration of the method; None for the final results."""
    unscored: Sequence[tuple[str, str, int]] = ()
    """Why answers have no score: (scorer, reason, count)."""
    audit: Audit | None = None
    """What the benchmark found in all its records at once, where it audits them."""
    warnings: Sequence[str] = ()
    """What its estimates warn of, by its benchmark."""

    @property
    def method(self) -> str:
        return self.key.method

    @property
    def models(self) -> Mapping[str, str]:
        """Role → spec."""
        return self.key.models

    @property
    def seed(self) -> int:
        return self.key.seed

    def estimate(self, metric: str, group: str = "all") -> Estimate | None:
        return next((e for e in self.estimates if e.metric == metric and e.group == group), None)


@dataclass(frozen=True, slots=True)
class Effect:
    """A paired difference, after − before, on the samples that both arms graded. Already scaled.

    For metrics whose best value is zero it is the difference of the distances from zero.
    """

    before: str
    after: str
    metric: str
    group: str
    difference: float | None
    low: float | None
    high: float | None
    n: int
    p_value: float | None
    p_adjusted: float | None
    correction: str
    test: str
    """`clustered bootstrap` or `exact McNemar`."""
    detectable: float | None
    """The smallest difference that this many samples would show with 80 % power."""
    direction: str
    """`fell`, `rose` or `undecided`; for metrics whose best value is zero it is the distance from zero that moves."""


@dataclass(frozen=True, slots=True)
class IterationResult:
    """An arm as it stood after one iteration of its method; results that were final by then are carried forward."""

    arm: str
    iteration: int
    """0 is the first answer."""
    estimates: Sequence[Estimate]
    """The headline and its guardrails, over all samples."""
    reached: int
    """Samples whose method got as far as this iteration."""
    of: int
    """Samples that were run."""

    def estimate(self, metric: str) -> Estimate | None:
        return next((each for each in self.estimates if each.metric == metric), None)


@dataclass(frozen=True, slots=True)
class AgreementRow:
    """How far two scorers agree about one attribute; None = undefined."""

    attribute: str
    n: int
    pearson: float | None
    spearman: float | None
    difference: float | None
    """The second's mean minus the first's."""
    low: float | None
    high: float | None
    same_side: float
    """The share of answers that both put on the same side of 0.5."""
    kappa: float | None
    """The same beyond chance."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two scorers agree on the final answers of a run."""

    first: str
    second: str
    rows: Sequence[AgreementRow]
    grid: int
    cells: Sequence[tuple[int, int, int]]
    """(cell by the first, cell by the second, answers in it) for the first row's attribute; cells are 1 / grid wide."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A mitigation (`after`) beside the arm without it, and what it turned around."""

    before: str
    after: str
    sentences: Sequence[str]


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Everything a report shows, apart from the single samples."""

    title: str
    benchmark: str
    headline: str
    guardrails: Sequence[str]
    metrics: Sequence[MetricInfo]
    groups: Sequence[str]
    arms: Sequence[ArmResult]
    effects: Sequence[Effect]
    verdicts: Sequence[str]
    """What follows, in whole sentences."""
    warnings: Sequence[str]
    provenance: Mapping[str, Any]
    """The plan, versions and hashes: how it was made."""
    scorers: Sequence[str] = ()
    """The scorers whose scores count, by id."""
    scoring: Usage = Usage()
    """What the scorers' own calls took."""
    by_iteration: Sequence[IterationResult] = ()
    agreements: Sequence[Agreement] = ()
    corrections: Sequence[Correction] = ()
    report_sections: Sequence[str] = ()
    """Sections that the benchmark adds to the report."""
    position_advice: str = ""
    """How the warning about a strong preference for a position ends."""


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn as the sample browser shows it."""

    agent: str
    role: str
    prompt_id: str
    prompt_hash: str
    messages: Sequence[tuple[str, str]]
    """(role, content) pairs."""
    outputs: Sequence[str]
    error: str | None
    tokens: int
    latency: float
    cached: bool
    model: str


@dataclass(frozen=True, slots=True)
class ShownSnapshot:
    """The answer as it stood after one iteration, and what the method noted about it."""

    iteration: int
    text: str
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ShownOutcome:
    """How one arm dealt with one sample."""

    arm: str
    status: Status
    answer: str
    reason: str | None
    stop: str
    grade: Mapping[str, Any]
    turns: Sequence[ShownTurn]
    snapshots: Sequence[ShownSnapshot] = ()


@dataclass(frozen=True, slots=True)
class ShownSample:
    """One sample with the outcomes of all arms, for the sample browser and for `evenhand show`."""

    id: str
    group: str
    kind: str
    context: str
    prompt: str
    choices: Sequence[str]
    target: Any
    metadata: Mapping[str, Any]
    outcomes: Sequence[ShownOutcome]
