"""What the verdicts of judges on pairs say about the judges: order, length, and answers of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from evenhand.stats import Bounds, Interval, mean_interval, share_interval
from evenhand.workflows.judge_pairs import Material, Verdict

SHARE: Bounds = (0.0, 1.0)
CHANGE: Bounds = (-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class OwnAnswers:
    """How a judge rates answers that it wrote itself, against other answers to the same questions."""

    arms: Sequence[str]
    rate: Interval
    """How often its own answer wins; a tie, or one win in each order, counts half."""
    by_others: Interval | None
    """The same by judges that wrote neither answer; None without any."""
    preference: Interval | None
    """Its own rate minus that of the other judges, on the same pairs."""


@dataclass(frozen=True, slots=True)
class JudgeFindings:
    """One judge on all pairs. Shares are from 0 to 1, clustered as the questions are."""

    judge: str
    pairs: int
    """Pairs that it judged in both orders."""
    unread: int
    consistent: Interval
    """Pairs in which the order changed nothing."""
    first: Interval
    """Verdicts for the answer shown first, of those that are no tie; 0.5 without a preference."""
    always_first: int
    """Pairs in which the answer shown first won in both orders."""
    always_second: int
    ties: int
    """Verdicts that are a tie."""
    longer: Interval
    """Pairs in which the longer answer won, of those with a winner in both orders."""
    wins: Mapping[str, float]
    """Arm → how often its answers win."""
    own: OwnAnswers | None
    """None for a judge that wrote no answers."""

    @property
    def sentences(self) -> list[str]:
        """What to know about this judge, each a whole sentence."""
        found: list[str] = []
        followed = self.always_first + self.always_second
        if followed:
            found.append(
                f"{self.judge} decided {followed:,} of {self.pairs:,} pairs by their order: the answer in the same "
                "place won both times."
            )
        if self.first.estimate is not None and _is_beyond(self.first, 0.5):
            place = "first" if self.first.estimate > 0.5 else "second"
            found.append(f"{self.judge} prefers the answer that is shown {place}.")
        if self.longer.estimate is not None and _is_beyond(self.longer, 0.5):
            kind = "longer" if self.longer.estimate > 0.5 else "shorter"
            found.append(f"{self.judge} mostly prefers the {kind} answer; it may also be the better one.")
        own = None if self.own is None else self.own.preference
        if own is not None and own.estimate is not None and _is_beyond(own, 0):
            more = "more" if own.estimate > 0 else "less"
            found.append(f"{self.judge} prefers its own answers {more} than the other judges do.")
        return found


@dataclass(frozen=True, slots=True)
class PairFindings:
    """All judges on the same pairs."""

    questions: int
    pairs: int
    same: int
    authors: Mapping[str, str]
    judges: Sequence[JudgeFindings]
    verdicts: Mapping[str, Sequence[Verdict]]

    @property
    def sentences(self) -> list[str]:
        """What to know first, each a whole sentence."""
        found = [sentence for judge in self.judges for sentence in judge.sentences]
        return found or ["No preference for a place, a length or own answers was found."]

    def note(self) -> dict[str, Any]:
        """Return everything as JSON values, with every verdict."""
        rows = [
            {
                "judge": judge,
                "sample": each.pair.sample.id,
                "arms": each.pair.arms,
                "straight": each.straight,
                "swapped": each.swapped,
            }
            for judge, verdicts in self.verdicts.items()
            for each in verdicts
        ]
        facts = {"questions": self.questions, "pairs": self.pairs, "same": self.same, "authors": dict(self.authors)}
        return {**facts, "judges": [asdict(each) for each in self.judges], "verdicts": rows}


def findings(material: Material, verdicts: Mapping[str, Sequence[Verdict]]) -> PairFindings:
    """Return what the verdicts say about each judge."""
    judges = [_judge(name, verdicts, material.authors) for name in verdicts]
    return PairFindings(material.questions, len(material.pairs), material.same, material.authors, judges, verdicts)


def _judge(name: str, verdicts: Mapping[str, Sequence[Verdict]], authors: Mapping[str, str]) -> JudgeFindings:
    read = [each for each in verdicts[name] if each.is_read]
    said = [(each.pair.cluster, winner) for each in read for winner in (each.straight, each.swapped)]
    decided = [each for each in read if each.is_consistent and each.straight != "tie" and _lengths(each)]
    return JudgeFindings(
        judge=name,
        pairs=len(read),
        unread=len(verdicts[name]) - len(read),
        consistent=_share([(each.pair.cluster, each.is_consistent) for each in read]),
        first=_share([(cluster, winner == "first") for cluster, winner in said if winner != "tie"]),
        always_first=sum(each.followed == "first" for each in read),
        always_second=sum(each.followed == "second" for each in read),
        ties=sum(winner == "tie" for _, winner in said),
        longer=_share([(each.pair.cluster, (each.straight == "first") == (_lengths(each) > 0)) for each in decided]),
        wins=_wins(read),
        own=_own(name, verdicts, authors),
    )


def _lengths(verdict: Verdict) -> int:
    first, second = verdict.pair.texts
    return len(first) - len(second)


def _wins(read: Sequence[Verdict]) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for each in read:
        for arm, score in zip(each.pair.arms, (each.score, 1 - each.score), strict=True):
            scores.setdefault(arm, []).append(score)
    return {arm: fmean(values) for arm, values in scores.items()}


def _own(name: str, verdicts: Mapping[str, Sequence[Verdict]], authors: Mapping[str, str]) -> OwnAnswers | None:
    rates: list[tuple[str, float]] = []
    others: list[tuple[str, float]] = []
    changes: list[tuple[str, float]] = []
    for place, each in enumerate(verdicts[name]):
        written = [authors[arm] == name for arm in each.pair.arms]
        if not each.is_read or sum(written) != 1:
            continue
        neutral = [judge for judge in verdicts if judge not in {authors[arm] for arm in each.pair.arms}]
        theirs = [_score(verdicts[judge][place], written[0]) for judge in neutral if verdicts[judge][place].is_read]
        rates.append((each.pair.cluster, _score(each, written[0])))
        if theirs:
            others.append((each.pair.cluster, fmean(theirs)))
            changes.append((each.pair.cluster, rates[-1][1] - others[-1][1]))
    if not rates:
        return None
    return OwnAnswers(
        [arm for arm, author in authors.items() if author == name],
        _mean(rates, SHARE),
        _mean(others, SHARE) if others else None,
        _mean(changes, CHANGE) if changes else None,
    )


def _score(verdict: Verdict, is_first: bool) -> float:
    return verdict.score if is_first else 1 - verdict.score


def _mean(values: Sequence[tuple[str, float]], bounds: Bounds) -> Interval:
    return mean_interval([value for _, value in values], [cluster for cluster, _ in values], bounds=bounds)


def _share(values: Sequence[tuple[str, bool]]) -> Interval:
    table: dict[str, list[int]] = {}
    for cluster, is_so in values:
        sums = table.setdefault(cluster, [0, 0])
        sums[0] += is_so
        sums[1] += 1
    return share_interval(list(table.values())) if table else Interval(None, None, None, 0)


def _is_beyond(found: Interval, value: float) -> bool:
    """Whether the whole interval is on one side of the value."""
    return found.low is not None and found.high is not None and not found.low <= value <= found.high
