"""The findings of an audit of judges as frozen dataclasses, used by commands and reports.

Differences are always x − y: in points (0–10), or for wins in shares (win rate of x − win rate of y). None means
undefined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from evenhand.stats import Interval

Measure = Literal["score_1", "score_2", "wins_2"]
MEASURES: Mapping[Measure, str] = {
    "score_1": "Score, phase 1",
    "score_2": "Score, phase 2",
    "wins_2": "Wins, phase 2",
}
"""What identities are compared on: scores of single candidates, scores of pairs, and winners of pairs."""

CONTROL = ""
"""The identity of an unlabelled candidate."""
COMBINED = "mean"
"""Name of the mean of the four metrics, used like a metric's name."""
ALL = "all"
"""Name of all categories together, used like a category's name."""
ALPHA = 0.05
"""Significance level: adjusted p-values below it are findings."""

Direction = Literal["amplified", "damped", "undecided"]
Turn = Literal["reversed", "new"]

CHI_SQUARE_CAVEAT = (
    "The chi-square tests follow the paper: they treat scores of the same scenarios as independent, so their p-values "
    "are less reliable than those of the paired tests"
)


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean consensus score of one identity in phase 1 (Figure 9 of the paper)."""

    identity: str
    category: str
    metric: str
    interval: Interval
    n: int
    """Scenarios; the n of an interval counts base scenarios."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counts of each rounded score from 0 to 10 in phase 1."""

    identity: str
    category: str
    metric: str
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Score of x − score of y for the same texts in phase 1, also across categories (Figure 4 of the paper)."""

    x: str
    y: str
    interval: Interval
    n: int
    """Scenarios in which both identities were judged."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A tested difference between two identities of a category, or between an identity and the unlabelled control."""

    measure: Measure
    metric: str
    """`mean`, or one metric; for wins always `mean`."""
    category: str
    x: str
    y: str
    difference: Interval
    standard_error: float | None
    p_value: float | None
    adjusted: float | None
    """After Holm's correction over the gap's family: all primary gaps, or all secondary ones."""
    effect: float | None
    """dz: the mean difference in standard deviations of the scenarios' differences."""
    n: int
    """Scenarios in which both identities were judged, in phase 2 in both orders."""
    primary: bool
    chosen: Interval | None = None
    """Of a gap that was found: the difference with a wider interval, since it was chosen among all."""

    @property
    def shown(self) -> Interval:
        return self.chosen or self.difference

    @property
    def found(self) -> bool:
        """Whether the adjusted p-value is small and the interval excludes 0: one extreme scenario can part the two."""
        return self.adjusted is not None and self.adjusted < ALPHA and not self.difference.includes(0)

    @property
    def favours(self) -> str | None:
        """The identity that is ahead, significant or not; None if they are equal."""
        difference = self.difference.estimate
        return None if not difference else self.x if difference > 0 else self.y


@dataclass(frozen=True, slots=True)
class Win:
    """How often an identity wins against the others of its category, a tie counting half (Figures 5 and 6)."""

    identity: str
    category: str
    interval: Interval
    """Clustered by base scenario."""
    wilson: Interval
    """Assumes that all comparisons are independent, as in the paper's figures."""
    n: int
    """Comparisons."""
    effective_n: float | None
    """Effective sample size: the number of independent comparisons with the same precision."""


@dataclass(frozen=True, slots=True)
class Association:
    """The chi-square test of identity × score level in phase 1; see CHI_SQUARE_CAVEAT."""

    category: str
    metric: str
    statistic: float | None
    df: int
    p_value: float | None
    cramers_v: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Position:
    """The effect of being shown first in phase 2, with identities counterbalanced."""

    first_wins: Interval
    """The share of wins of the candidate shown first; 0.5 is no preference."""
    first_wins_p: float | None
    score_gap: Interval
    """Score of the first − score of the second."""
    score_gap_p: float | None
    n: int

    @property
    def decided(self) -> bool:
        """Whether a place is preferred, by the rule of gaps: a small p-value and an interval that excludes 0.5."""
        return self.first_wins_p is not None and self.first_wins_p < ALPHA and not self.first_wins.includes(0.5)


@dataclass(frozen=True, slots=True)
class Shift:
    """The change of one gap up to a round: x − y in that round minus x − y in round 0."""

    measure: Measure
    round: int
    category: str
    x: str
    y: str
    before: float | None
    after: float | None
    change: Interval


@dataclass(frozen=True, slots=True)
class Amplification:
    """Whether the discussion up to a round makes the gaps of a category, or of all categories, larger or smaller."""

    measure: Measure
    round: int
    category: str
    """`all` for all categories together."""
    before: float | None
    """The mean absolute gap in round 0, and `after` in this round, from judges that scored in both."""
    after: float | None
    change: Interval
    """after − before."""
    n: int
    """Scenarios with a gap in both rounds."""
    p_value: float | None
    """Tests that the discussion moves no gap. Unlike `change`, it does not react to a discussion that only makes scores
    less noisy, which also makes absolute gaps smaller."""
    direction: Direction
    """Decided if the p-value is significant after Holm's correction over all measures and categories of the round."""


@dataclass(frozen=True, slots=True)
class Influence:
    """How far a listener moved towards a judge that it heard, as a share of their distance.

    This includes regression to the mean: a listener that only corrects its own outliers moves towards everybody.
    """

    listener: str
    judge: str
    share: Interval
    n: int
    """Number of scores that could move."""


@dataclass(frozen=True, slots=True)
class JudgeCoverage:
    """Requested and given judgements of one judge."""

    judge: str
    asked: int
    missing: int
    """Judgements that could not be parsed or were declined."""
    unchanged: float | None
    """The share of samples in which its first and last scores are equal; None without a discussion."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of the requested judgements were given."""

    samples: int
    graded: int
    refused: int
    cut: int
    unscored: int
    failed: int
    asked: int
    """Judgements in graded samples; of these `unread` and `declined` are missing."""
    unread: int
    declined: int
    judges: tuple[JudgeCoverage, ...]


@dataclass(frozen=True, slots=True)
class OverCorrection:
    """A gap that a mitigation `reversed`, or a `new` gap in favour of the identity that was behind before."""

    before: Gap
    after: Gap
    kind: Turn
    sentence: str


@dataclass(frozen=True, slots=True)
class PanelAudit:
    """All findings on one arm: a judge or a panel."""

    categories: Mapping[str, tuple[str, ...]]
    """Identities by category, in the order of all tables; without the control."""
    authors: Mapping[str, str]
    """Identity → its description in a sentence: "a female professional"."""
    judges: tuple[str, ...]
    rounds: int
    """Rounds of discussion; 0 without a discussion."""
    scenarios: int
    bases: int
    """Base scenarios, the independent units of intervals and tests."""
    confidence: float
    means: tuple[Mean, ...]
    distributions: tuple[Distribution, ...]
    matrix: tuple[Difference, ...]
    """Every two identities once; `difference` looks up both orders."""
    gaps: tuple[Gap, ...]
    """The primary family: every pair × every measure."""
    secondary: tuple[Gap, ...]
    """The same by metric, and identities against the unlabelled control."""
    detectable: Mapping[Measure, float | None]
    """The smallest gap that would be detected in every pair with 80 % power, after correction."""
    wins: tuple[Win, ...]
    chi_square: tuple[Association, ...]
    position: Position
    shifts: tuple[Shift, ...]
    amplification: tuple[Amplification, ...]
    influence: tuple[Influence, ...]
    coverage: Coverage
    sentences: tuple[str, ...] = ()
    """The findings in words, the most important first."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """What was scored in phase 1, in the order of the reply."""
        return tuple(dict.fromkeys(each.metric for each in self.means if each.metric != COMBINED))

    @property
    def identities(self) -> tuple[str, ...]:
        """All identities, by category; without the control."""
        return tuple(identity for identities in self.categories.values() for identity in identities)

    @property
    def found(self) -> tuple[Gap, ...]:
        """The significant primary gaps, sorted by p-value and then by size."""
        return tuple(sorted((gap for gap in self.gaps if gap.found), key=_certainty))

    @property
    def verdict(self) -> str:
        return "found" if self.found else "nothing found"

    @property
    def headline(self) -> tuple[str, str, str]:
        """The number of gaps found: unlike a mean gap, it does not grow with the noise of the scores."""
        title, tests = "Gaps found", len(self.gaps)
        level = all(gap.difference.low == gap.difference.high == 0 for gap in self.gaps)
        if not tests or not (self.found or level or any(size is not None for size in self.detectable.values())):
            return title, "–", "too few scenarios to find any"
        return title, f"{len(self.found)} of {tests}", "after correction for their number"

    def difference(self, x: str, y: str) -> Difference | None:
        """Returns x − y in phase 1; None if the two were never compared."""
        for each in self.matrix:
            if (each.x, each.y) == (x, y):
                return each
            if (each.x, each.y) == (y, x):
                return Difference(x, y, each.interval.times(-1), each.n)
        return None


def _certainty(gap: Gap) -> tuple[float, float]:
    # Sorted by dz, since points and shares of wins are not comparable.
    return (1.0 if gap.adjusted is None else gap.adjusted, -abs(gap.effect or 0.0))
