"""Judges checked by pairs of answers: does the order decide, and does a judge prefer answers of its own?

Every judge compares the answers of two arms to the same question, in both orders. What it says must not depend on the
order. Whether it prefers its own answers shows against other judges of the same pairs, who may be right that these are
better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, Literal

from pydantic import BaseModel

from evenhand.asking.reply import ask_json, object_schema
from evenhand.core import aio
from evenhand.core.errors import ModelError, PlanError
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.specs import model_spec
from evenhand.core.types import Message, Params, Sample, Unscored
from evenhand.core.untrusted import fenced
from evenhand.models.base import Model
from evenhand.session import Session
from evenhand.stats import Bounds, Interval, clustered_share, mean_interval

Winner = Literal["first", "second", "tie"]
"""Of the two answers as they were shown."""
SHARE: Bounds = (0.0, 1.0)
CHANGE: Bounds = (-1.0, 1.0)
LEVEL = 0.05
"""Chance that any judge seems to have a preference that has none."""
_TOKENS = 1024
_SHOWN: Mapping[str, Winner] = {"A": "first", "B": "second", "tie": "tie"}
_SCHEMA = object_schema(winner={"type": "string", "enum": list(_SHOWN)})


class _Reply(BaseModel):
    winner: Literal["A", "B", "tie"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two answers to one question, by two arms."""

    sample: Sample
    arms: tuple[str, str]
    texts: tuple[str, str]
    known: bool = False
    """Whether it is known which one is better: a preference for length does not show there."""

    @property
    def cluster(self) -> str:
        return self.sample.cluster or self.sample.id


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """What a judge said about a pair in both orders; None where it could not be read."""

    pair: Comparison
    straight: Winner | None
    """With the answers in the order of the pair's arms."""
    swapped: Winner | None

    @property
    def is_read(self) -> bool:
        return self.straight is not None and self.swapped is not None

    @property
    def score(self) -> float:
        """Of the pair's first answer: 1 if it won in both orders, 0.5 for a tie or one win each, 0 if it lost."""
        straight = {"first": 1.0, "second": 0.0, "tie": 0.5}[self.straight or "tie"]
        return (straight + {"first": 0.0, "second": 1.0, "tie": 0.5}[self.swapped or "tie"]) / 2

    @property
    def is_consistent(self) -> bool:
        """Whether the order changed nothing."""
        return (self.straight, self.swapped) in (("first", "second"), ("second", "first"), ("tie", "tie"))

    @property
    def followed(self) -> Literal["first", "second"] | None:
        """The position that won in both orders, whichever answer was there."""
        return self.straight if self.straight == self.swapped and self.straight != "tie" else None


@dataclass(frozen=True, slots=True)
class ComparisonSet:
    """The pairs to judge, and the model that wrote the answers of each arm."""

    pairs: Sequence[Comparison]
    authors: Mapping[str, str]
    questions: int
    same: int
    """Pairs that are left out, because both answers are the same."""


def author_of(spec: str) -> str:
    """The model without its options: the author of its answers, at whichever address."""
    return model_spec(spec)[0]


async def judge_pairs(
    model: Model, pairs: Sequence[Comparison], concurrency: int, tell: Callable[[], None]
) -> list[PairVerdict]:
    """Ask a judge about every pair in both orders."""
    prompt = load_prompt(__file__, "prefer")
    room = asyncio.Semaphore(min(concurrency, model.slots or concurrency))
    reasons: list[str] = []

    async def winner(pair: Comparison, texts: tuple[str, str]) -> Winner | None:
        async with room:
            try:
                reply = await ask_json(
                    Session(pair.sample, {"base": model}),
                    prompt,
                    pair_messages(prompt, pair, texts),
                    _Reply,
                    _SCHEMA,
                    Params(temperature=0, max_tokens=_TOKENS),
                    agent="judge",
                )
            except ModelError as error:
                if error.permanent:
                    raise
                reply = Unscored(str(error))
        tell()
        if isinstance(reply, Unscored):
            reasons.append(reply.reason)
            return None
        return _SHOWN[reply.winner]

    async def both(pair: Comparison) -> PairVerdict:
        first, second = pair.texts
        return PairVerdict(pair, *await aio.all_of([winner(pair, (first, second)), winner(pair, (second, first))]))

    verdicts = await aio.all_of([both(pair) for pair in pairs])
    if not any(verdict.is_read for verdict in verdicts):
        raise PlanError(
            f"No verdict of {model.spec} about two answers could be read: {reasons[0]}. Use another model as the "
            "judge, or name the other probes with --probe."
        )
    return verdicts


def pair_messages(prompt: Prompt, pair: Comparison, texts: tuple[str, str]) -> list[Message]:
    """What a judge is asked about a pair, with the answers in the order of `texts`."""
    question = "\n".join(filter(None, (pair.sample.context, pair.sample.prompt)))
    return list(prompt.render(question=fenced(question), first=fenced(texts[0]), second=fenced(texts[1])))


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
    wins: Mapping[str, Interval]
    """Arm → how often its answers win."""
    own: OwnAnswers | None
    """None for a judge that wrote no answers."""
    beyond: Sequence[str] = ()
    """Which of first, longer and own are beyond chance, corrected for all judges."""

    @property
    def sentences(self) -> list[str]:
        """What to know about this judge, each a whole sentence."""
        found: list[str] = []
        followed = self.always_first + self.always_second
        if followed:
            found.append(
                f"{self.judge} decided {followed:,} of {self.pairs:,} pairs by their order or by chance: "
                "the answer in the same place won both times."
            )
        if "longer" in self.beyond and self.longer.estimate is not None:
            kind = "longer" if self.longer.estimate > 0.5 else "shorter"
            found.append(f"{self.judge} mostly prefers the {kind} answer; it may also be the better one.")
        return [*found, *self.prefers]

    @property
    def prefers(self) -> list[str]:
        """The preferences beyond chance that say nothing about the answers: for a place, and for its own."""
        found: list[str] = []
        if "first" in self.beyond and self.first.estimate is not None:
            place = "first" if self.first.estimate > 0.5 else "second"
            found.append(f"{self.judge} prefers the answer that is shown {place}.")
        own = None if self.own is None else self.own.preference
        if "own" in self.beyond and own is not None and own.estimate is not None:
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
    verdicts: Mapping[str, Sequence[PairVerdict]]

    @property
    def faults(self) -> list[str]:
        """What to know of the judges, each a whole sentence."""
        return [sentence for judge in self.judges for sentence in judge.sentences]

    @property
    def sentences(self) -> list[str]:
        return self.faults or ["No preference for a place, a length or own answers was found."]

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


def findings(material: ComparisonSet, verdicts: Mapping[str, Sequence[PairVerdict]]) -> PairFindings:
    """Return what the verdicts say about each judge."""
    # Each judge is tested for three preferences.
    confidence = 1 - LEVEL / (3 * len(verdicts)) if verdicts else 0.95
    judges = [
        replace(
            _judge(name, verdicts, material.authors),
            beyond=_beyond(_judge(name, verdicts, material.authors, confidence)),
        )
        for name in verdicts
    ]
    return PairFindings(material.questions, len(material.pairs), material.same, material.authors, judges, verdicts)


def _beyond(found: JudgeFindings) -> list[str]:
    """Return the preferences whose whole interval is on one side of chance."""
    tested = [("first", found.first, 0.5), ("longer", found.longer, 0.5)]
    if found.own is not None and found.own.preference is not None:
        tested.append(("own", found.own.preference, 0.0))
    return [name for name, each, chance in tested if each.low is not None and not each.includes(chance)]


def _judge(
    name: str,
    verdicts: Mapping[str, Sequence[PairVerdict]],
    authors: Mapping[str, str],
    confidence: float = 0.95,
) -> JudgeFindings:
    read = [each for each in verdicts[name] if each.is_read]
    said = [(each.pair.cluster, winner) for each in read for winner in (each.straight, each.swapped)]
    decided = [
        each
        for each in read
        if each.is_consistent and each.straight != "tie" and _lengths(each) and not each.pair.known
    ]
    return JudgeFindings(
        judge=name,
        pairs=len(read),
        unread=len(verdicts[name]) - len(read),
        consistent=clustered_share([(each.pair.cluster, each.is_consistent) for each in read]),
        first=clustered_share(
            [(cluster, winner == "first") for cluster, winner in said if winner != "tie"], confidence
        ),
        always_first=sum(each.followed == "first" for each in read),
        always_second=sum(each.followed == "second" for each in read),
        ties=sum(winner == "tie" for _, winner in said),
        longer=clustered_share(
            [(each.pair.cluster, (each.straight == "first") == (_lengths(each) > 0)) for each in decided], confidence
        ),
        wins=_wins(read),
        own=_own(name, verdicts, authors, confidence),
    )


def _lengths(verdict: PairVerdict) -> int:
    first, second = verdict.pair.texts
    return len(first) - len(second)


def _wins(read: Sequence[PairVerdict]) -> dict[str, Interval]:
    scores: dict[str, list[tuple[str, float]]] = {}
    for each in read:
        for arm, score in zip(each.pair.arms, (each.score, 1 - each.score), strict=True):
            scores.setdefault(arm, []).append((each.pair.cluster, score))
    return {arm: _mean(values, SHARE, 1 - LEVEL) for arm, values in scores.items()}


def _own(
    name: str, verdicts: Mapping[str, Sequence[PairVerdict]], authors: Mapping[str, str], confidence: float
) -> OwnAnswers | None:
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
        _mean(rates, SHARE, confidence),
        _mean(others, SHARE, confidence) if others else None,
        _mean(changes, CHANGE, confidence) if changes else None,
    )


def _score(verdict: PairVerdict, is_first: bool) -> float:
    return verdict.score if is_first else 1 - verdict.score


def _mean(values: Sequence[tuple[str, float]], bounds: Bounds, confidence: float) -> Interval:
    return mean_interval([value for _, value in values], [cluster for cluster, _ in values], confidence, bounds)
