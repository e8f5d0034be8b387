"""Results of a study as plain values: the only input of tables, conclusions and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast

from evenhand.benchmarks.base import Audit, Meaning
from evenhand.core.format import DASH, count, decimals, interval, plural
from evenhand.core.types import Status, Usage
from evenhand.runs.plan import ArmKey
from evenhand.runs.summary import UNGRADED
from evenhand.stats import Interval, ScoreAgreement

FEW = 10
"""Shares of fewer samples are shown as counts."""

Verdict = Literal[
    "worse", "better", "changed", "probably worse", "probably better", "probably changed", "no change", "cannot tell",
    "excluded", "not excluded", "not comparable", "found", "none found", "nothing found", "measured",
]  # fmt: skip
"""What a comparison says about a metric; those from `found` on are for an arm that is compared with nothing."""
WORDS: Mapping[Verdict, str] = {
    "worse": "Worse",
    "better": "Better",
    "changed": "Changed",
    "probably worse": "Probably worse, not certain after correction",
    "probably better": "Probably better, not certain after correction",
    "probably changed": "Probably changed, not certain after correction",
    "no change": "No change that matters",
    "cannot tell": "Cannot tell",
    "not comparable": "Not comparable",
    "excluded": "The published size is excluded",
    "not excluded": "The published size is possible",
    "found": "Found",
    "none found": "None that matters",
    "nothing found": "Nothing found beyond chance",
    "measured": "Measured",
}
SYMBOLS: Mapping[Verdict, str] = {
    "worse": "✕", "better": "✓", "changed": "↔", "probably worse": "✕?", "probably better": "✓?",
    "probably changed": "↔?", "no change": "=", "cannot tell": "?", "not comparable": "?",
    "excluded": "≠", "not excluded": "≈", "found": "●",
    "none found": "=", "nothing found": "?", "measured": "•",
}  # fmt: skip
"""Beside the words, so that nothing depends on colour."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One conclusion: a verdict, a sentence that can be repeated, and the numbers behind it."""

    verdict: Verdict
    text: str
    """Without the verdict's word and without a full stop; it begins with `who`, where there is one."""
    who: str = ""
    metric: str = ""
    """The metric that it is about; empty for the findings of an audit and where it is about several."""
    arms: tuple[str, ...] = ()
    """The ids of the arms that it compares, or of the one that it is about."""
    detail: str = ""
    """Further sentences: change, interval, p-value, n."""
    weight: float = 0.0
    """How large it is, in margins; the largest of one verdict come first."""
    groups: tuple[str, ...] = ()
    """The groups that it is about, if not about all samples."""

    @property
    def word(self) -> str:
        return WORDS[self.verdict]

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.verdict]

    @property
    def sentence(self) -> str:
        """The first sentence: `Worse: …`."""
        return f"{self.word}: {self.text}."

    def __str__(self) -> str:
        return f"{self.sentence} {self.detail}".strip()


SERIOUS: Collection[Verdict] = ("worse", "probably worse", "found")
GOOD: Collection[Verdict] = ("better", "probably better", "none found")
"""The verdicts in the colours of worse and better; the others have none."""


@dataclass(frozen=True, slots=True)
class RunExample:
    """A sample of the run that shows what the first finding is about."""

    text: str
    answers: Sequence[tuple[str, str]]
    """(who, what it answered)."""
    may_offend: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """One metric of one arm in one group (`all` or a subgroup), scaled for display; value None = undefined."""

    metric: str
    group: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    successes: int | None = None
    """Of n, for shares of samples."""
    clusters: int | None = None
    """The n samples come from so many templates, prompts or scenarios; thousands are put into groups."""
    few_clusters: bool = False
    """So few that the interval may be too narrow."""

    @classmethod
    def of(cls, found: Interval, n: int, metric: str = "", group: str = "") -> Self:
        """The estimate of an interval in the unit of display; n is the number to show."""
        return cls(metric, group, found.estimate, found.low, found.high, n)

    @property
    def as_count(self) -> str | None:
        """`2 of 3` for a share of few samples, which says more than a percentage with its interval."""
        return f"{self.successes} of {self.n}" if self.successes is not None and 0 < self.n < FEW else None


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """How to display a metric."""

    name: str
    title: str
    better: str | None
    """`higher`, `lower`, `zero` or None."""
    share: bool
    """Whether it is a percentage, rather than a score on its own scale."""
    chance: float | None = None
    """The value that guessing gives, scaled."""
    meaning: Meaning = Meaning()
    comparable: tuple[float, float] | None = None
    """The ratios of two arms' values within which a better headline counts; None for any."""
    untold: str = ""
    """Why it has no value: the judge or scorer behind it does not see what it rates."""
    margin: float | None = None
    """Changes up to this size do not matter; None if nothing says so."""
    best: float | None = None
    """The best value of the scale; None if it has none."""
    points: bool = False
    """Whether differences are points of 100."""
    rating: bool = False
    """Whether it is a rating from 0 to 100, which is no percentage."""
    ends: tuple[float, float] | None = None
    """The lowest and the highest possible value (or infinity), scaled; None if unknown."""


@dataclass(frozen=True, slots=True)
class PositionBias:
    """How often each position was chosen. Options are shuffled, so an unbiased reader chooses uniformly."""

    counts: tuple[int, ...]
    p_value: float | None
    distance: float | None
    """Total variation distance from uniform, 0–1."""
    expected: tuple[float, ...] = ()
    """The counts of an unbiased reader where samples have different numbers of options; empty: all equal."""


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm: one method on one set of models with one seed."""

    id: str
    label: str
    key: ArmKey
    estimates: Sequence[Estimate]
    statuses: Mapping[Status, int]
    pending: int
    """Planned samples that have not been run, because the run was stopped."""
    reasons: Sequence[tuple[Status, str, int]]
    """Why samples were not graded: (status, reason, count), most frequent first."""
    usage: Mapping[str, Usage]
    """Usage by model role."""
    seconds: float
    """The arm's share of the run's wall time."""
    position: PositionBias | None = None
    confusion: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    """Expected kind of answer → given kind → count."""
    iteration: int | None = None
    """The iteration whose answers are counted; None for the final answers."""
    unscored: Sequence[tuple[str, str, int]] = ()
    """Why answers have no score: (scorer, reason, count)."""
    at_limit: int = 0
    """Answers that end at the token limit, although they could be read."""
    readings: Mapping[str, int] = field(default_factory=dict[str, int])
    """How judges were read (`logprobs`, `samples`, `written`) → in how many samples."""
    audit: Audit | None = None
    """The benchmark's audit of the arm's records, if it makes one."""
    warnings: Sequence[str] = ()
    """The benchmark's warnings about the arm's estimates."""
    nodes: Sequence[Estimate] = ()
    """Of a panel: what is measured by member (`node_…`) and by edge (`edge_…`), named by the group."""

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
    """A paired difference, after − before, on the samples graded in both arms, scaled for display.

    For metrics whose best value is zero, it is the difference of the distances from zero.
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
    """`cluster permutation` or `exact McNemar`."""
    detectable: float | None
    """Minimum difference that is decided with 80 % power, after the correction.

    None if the spread is unknown, infinite if no difference would be."""
    direction: str
    """`fell`, `rose` or `undecided`; for metrics whose best value is zero, the direction of the distance from zero."""
    first: float | None = None
    """The value of `before` on these samples."""
    last: float | None = None
    """The value of `after` on these samples."""
    clusters: int = 0
    """The n samples come from so many templates, prompts or scenarios."""
    few_clusters: bool = False
    """So few that the interval may be too narrow."""
    margin: float | None = None
    """Changes up to this size do not matter."""
    verdict: Verdict = "cannot tell"
    """What it means, by direction, interval and margin."""
    published: float | None = None
    """The difference that others published."""

    @property
    def excludes_published(self) -> bool | None:
        """Whether the published difference lies outside the interval; None if either is unknown."""
        if self.published is None or self.low is None or self.high is None:
            return None
        return not self.low <= self.published <= self.high


@dataclass(frozen=True, slots=True)
class IterationResult:
    """An arm's results after one iteration of its method; answers that were already final are carried forward."""

    arm: str
    iteration: int
    """0 is the first answer."""
    estimates: Sequence[Estimate]
    """The headline and its guardrails, over all samples."""
    reached: int
    """Samples that reached this iteration."""
    of: int
    """Samples that were run."""

    def estimate(self, metric: str) -> Estimate | None:
        return next((each for each in self.estimates if each.metric == metric), None)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two scorers on the final answers of a run."""

    first: str
    second: str
    rows: Sequence[ScoreAgreement]
    grid: int
    cells: Sequence[tuple[int, int, int]]
    """(cell of the first, cell of the second, answers) for the first row's attribute; a cell is 1 / grid wide."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A mitigation (`after`) compared with the arm without it (`before`), and the gaps that it reversed."""

    before: str
    after: str
    sentences: Sequence[str]


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Everything that a report shows, except the single samples."""

    title: str
    benchmark: str
    headline: str
    guardrails: Sequence[str]
    metrics: Sequence[MetricInfo]
    groups: Sequence[str]
    arms: Sequence[ArmResult]
    effects: Sequence[Effect]
    findings: Sequence[Finding]
    """The conclusions: what was decided, the worst first, then what stayed open."""
    warnings: Sequence[str]
    """Reasons to doubt single numbers, the most serious first."""
    provenance: Mapping[str, Any]
    """Plan, versions and hashes of each run."""
    scorers: Sequence[str] = ()
    """Ids of the scorers whose scores count."""
    scoring: Usage = Usage()
    """Usage of the scorers' own calls."""
    by_iteration: Sequence[IterationResult] = ()
    agreements: Sequence[Agreement] = ()
    corrections: Sequence[Correction] = ()
    report_sections: Sequence[str] = ()
    """Sections that the benchmark adds to the report."""
    position_advice: str = ""
    """End of the warning about a strong position bias."""
    caveats: Sequence[str] = ()
    """A caveat that changes how the headline is read; shown next to it."""
    notes: Sequence[str] = ()
    """Technical notes of the runs, such as what an endpoint does not support; each once."""
    example: RunExample | None = None

    @property
    def whole_arms(self) -> list[ArmResult]:
        """The arms without their single iterations."""
        return [arm for arm in self.arms if arm.iteration is None]

    @property
    def verdicts(self) -> list[str]:
        """The findings in whole sentences."""
        return [str(finding) for finding in self.findings]

    @property
    def lead(self) -> str:
        """The metric of the first sentence, which the first chart shows; the headline if it is about none."""
        known = {metric.name for metric in self.metrics}
        return next((finding.metric for finding in self.findings[:1] if finding.metric in known), self.headline)

    @property
    def nothing_measured(self) -> bool:
        """Whether samples were run and none of them has a result."""
        statuses = [arm.statuses for arm in self.arms if arm.iteration is None]
        return any(map(any, (each.values() for each in statuses))) and all(
            sum(each.values()) == sum(each.get(status, 0) for status in UNGRADED) for each in statuses
        )

    @property
    def unmeasured(self) -> Sequence[str]:
        """The arms of which samples were run and none has a result, or none a score for the headline."""
        arms = [arm for arm in self.arms if arm.iteration is None and any(arm.statuses.values())]
        return [
            arm.label
            for arm in arms
            if sum(arm.statuses.get(each, 0) for each in UNGRADED) + self._lost(arm) >= sum(arm.statuses.values())
        ]

    def _lost(self, arm: ArmResult) -> int:
        """How many answers of an arm without a headline a scorer could not score."""
        if any(each.metric == self.headline and each.value is not None for each in arm.estimates):
            return 0
        lost = Counter[str]()
        for scorer, _, n in arm.unscored:
            lost[scorer] += n
        return max(lost.values(), default=0)

    def digits(self, metric: str) -> int:
        """The decimals of a metric, the same in every sentence, table and chart of the study."""
        info = next((each for each in self.metrics if each.name == metric), None)
        found = [each for arm in self.arms for each in arm.estimates if each.metric == metric]
        return digits_for(info, found) if info is not None else 1


def digits_for(info: MetricInfo, estimates: Iterable[Estimate]) -> int:
    """Return the decimals for all values of a metric: one for percentages, otherwise by size."""
    return decimals((value for each in estimates for value in (each.value, each.low, each.high)), share=info.share)


def estimate_text(estimate: Estimate | None, digits: int = 1) -> str:
    """An estimate as text: `12.3 [4.5, 20.1], n = 482`, or `2 of 3`."""
    if estimate is None:
        return f"{DASH}, n = 0"
    if estimate.as_count is not None:
        return estimate.as_count
    return f"{interval(estimate.value, estimate.low, estimate.high, digits)}, {size(estimate)}"


def size(of: Estimate | Effect) -> str:
    """What an interval rests on: `n = 482`, or `n = 40, only 5 clusters`."""
    return f"n = {count(of.n)}{few_clusters(of)}"


def few_clusters(of: Estimate | Effect) -> str:
    """`, only 5 clusters`, or nothing if there are enough."""
    return f", only {plural(of.clusters or 0, 'cluster')}" if of.few_clusters else ""


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn as shown in the sample browser."""

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
    thoughts: Sequence[str] = ()
    """What the model thought before each output; empty where it did not."""
    thought_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ShownSnapshot:
    """The answer after one iteration, with the method's notes."""

    iteration: int
    text: str
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ShownOutcome:
    """The outcome of one sample in one arm."""

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
    """One sample with the outcomes of all arms, for the sample browser and for `evenhand run show`."""

    id: str
    group: str
    kind: str
    context: str
    prompt: str
    choices: Sequence[str]
    target: Any
    metadata: Mapping[str, Any]
    outcomes: Sequence[ShownOutcome]


def with_dates(title: str, provenance: Mapping[str, Any]) -> str:
    """Add the first and last day of the runs to a title: `title (2026-03-01 to 2026-03-04)`."""
    runs = [cast("Mapping[str, Any]", each) for each in provenance.values() if isinstance(each, Mapping)]
    days = sorted({str(run.get("created") or "")[:10] for run in runs} - {""})
    return f"{title} ({' to '.join(dict.fromkeys((days[0], days[-1])))})" if days else title
