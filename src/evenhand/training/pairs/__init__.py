"""From the statements of debates to preference pairs: clean, tell high from low bias, pair within a topic, split.

The prompt of a pair is the topic's neutral question. Topics are told apart by their question, so that no question is
trained on under one name and tested on under another. Pure functions; `pairs_folder` reads runs and writes files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from statistics import median
from typing import Any

from evenhand.benchmarks.debates.records import WORST, Statement
from evenhand.errors import UsageError
from evenhand.training.pairs.leaks import LeakCheck
from evenhand.training.pairs.personas import names_role, without_persona

MEDIAN = "median"
LEAST_WORDS = 4
"""What is shorter says nothing."""


@dataclass(frozen=True, slots=True)
class PairOptions:
    """How pairs are made."""

    policy: str = "threshold"
    threshold: float | str = 3.0
    """A score above it is high bias, one up to it low; `median`: half of the scores are each, for referees who give
    next to nothing above 3, or below."""
    margin: float = 2.0
    """The least difference of scores within a pair."""
    length_ratio: float | None = None
    """The most words that one answer of a pair may have for each word of the other; None: any. A reward model learns
    nothing as soon as that the better answers are the shorter ones."""
    per_topic: int = 8
    """The most pairs of one topic."""
    test_share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"There is no policy {self.policy!r}; choose of {', '.join(POLICIES)}.")
        if self.threshold != MEDIAN and not (isinstance(self.threshold, int | float) and 0 <= self.threshold < WORST):
            raise UsageError(f"The threshold must be from 0 to below {WORST}, or {MEDIAN}, not {self.threshold}.")
        if not 0 < self.margin <= WORST:
            raise UsageError(f"The margin must be above 0 and at most {WORST}, not {self.margin:g}.")
        if self.length_ratio is not None and not self.length_ratio >= 1:
            raise UsageError(f"The ratio of lengths must be 1 or more, not {self.length_ratio:g}.")
        if self.per_topic < 1:
            raise UsageError(f"A topic must be allowed 1 pair at least, not {self.per_topic}.")
        if not 0 < self.test_share < 1:
            raise UsageError(f"The share of test topics must be between 0 and 1, not {self.test_share:g}.")


@dataclass(frozen=True, slots=True)
class Debate:
    """One debate of a stored run."""

    id: str
    """The topic's."""
    bias: str
    question: str
    statements: tuple[Statement, ...]

    @property
    def topic(self) -> str:
        return _folded(self.question)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A statement that may be trained on: scored, without its persona."""

    debate: Debate
    role: str
    round: int
    score: float
    text: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one question, the first less biased."""

    chosen: Candidate
    rejected: Candidate

    @property
    def margin(self) -> float:
        return self.rejected.score - self.chosen.score

    @property
    def length_ratio(self) -> float:
        """How many times as long the longer answer is."""
        shorter, longer = sorted(len(each.text.split()) for each in (self.chosen, self.rejected))
        return longer / shorter


@dataclass(frozen=True, slots=True)
class PairSet:
    """All that training reads, and what became of the rest."""

    pairs: Sequence[Pair]
    low: Sequence[Candidate]
    """What supervised fine-tuning imitates."""
    test: frozenset[str]
    """The topics that are held out."""
    threshold: float
    counts: Mapping[str, int]
    leaks: Sequence[Mapping[str, Any]]
    """What was dropped for being BBQ's text."""


def make_pairs(debates: Sequence[Debate], options: PairOptions, check: LeakCheck) -> PairSet:
    """The pairs and low-bias answers of debates; whatever is left out is counted."""
    counts: Counter[str] = Counter(debates=len(debates), statements=sum(len(each.statements) for each in debates))
    leaks: list[dict[str, Any]] = []
    candidates = _cleaned(_without_leaks(_scored(debates, counts), check, counts, leaks), counts)
    by_topic = {
        topic: list(group) for topic, group in groupby(_by_topic(candidates), key=lambda each: each.debate.topic)
    }
    threshold = _threshold(options, candidates)
    pairs: list[Pair] = []
    low: list[Candidate] = []
    for group in by_topic.values():
        lower = [each for each in group if each.score <= threshold]
        higher = [each for each in group if each.score > threshold]
        counts.update(low=len(lower), high=len(higher))
        low += lower
        found = POLICIES[options.policy](lower, higher, options)
        pairs += found
        counts[_fate(lower, higher, found)] += 1
    counts.update(topics=len({each.topic for each in debates}), pairs=len(pairs))
    _check_classes(pairs, options, threshold, counts)
    return PairSet(pairs, low, _held_out(pairs, low, options), threshold, counts, leaks)


def _threshold(options: PairOptions, candidates: Sequence[Candidate]) -> float:
    if isinstance(options.threshold, int | float):
        return float(options.threshold)
    scores = [each.score for each in candidates]
    middle = median(scores) if scores else 0.0
    # Where most have the highest score, these are high, and all others low.
    return middle if any(score > middle for score in scores) else max((s for s in scores if s < middle), default=middle)


def _scored(debates: Iterable[Debate], counts: Counter[str]) -> list[Candidate]:
    """The statements with a score, their personas taken off."""
    found: list[Candidate] = []
    for debate in debates:
        for said in debate.statements:
            if said.score is None:
                counts["unscored"] += 1
                continue
            text, phrases = without_persona(said.text, said.role)
            counts["persona_phrases"] += phrases
            counts["persona_texts"] += phrases > 0
            found.append(Candidate(debate, said.role, said.round, said.score, text))
    return found


def _without_leaks(
    candidates: Iterable[Candidate], check: LeakCheck, counts: Counter[str], leaks: list[dict[str, Any]]
) -> list[Candidate]:
    kept: list[Candidate] = []
    asked = {question: check.leak_in(question) for question in {each.debate.question for each in candidates}}
    for each in candidates:
        words = asked[each.debate.question] or check.leak_in(each.text)
        if words is None:
            kept.append(each)
        else:
            counts["leaked"] += 1
            where = {"topic": each.debate.id, "bias": each.debate.bias, "role": each.role, "round": each.round}
            leaks.append({**where, "words": words})
    return kept


def _cleaned(candidates: Iterable[Candidate], counts: Counter[str]) -> list[Candidate]:
    """Without what says nothing, and without what was said before, on whatever topic: it would be in both splits."""
    kept: list[Candidate] = []
    said: set[str] = set()
    for each in candidates:
        folded = _folded(each.text)
        if folded.count(" ") + 1 < LEAST_WORDS:
            counts["too_short"] += 1
        elif folded in said:
            counts["duplicates"] += 1
        else:
            said.add(folded)
            counts["role_still_named"] += names_role(each.text, each.role)
            kept.append(each)
    return kept


def _fate(lower: Sequence[Candidate], higher: Sequence[Candidate], pairs: Sequence[Pair]) -> str:
    if pairs:
        return "topics_with_pairs"
    if lower and higher:
        return "topics_without_margin"
    return "topics_low_only" if lower else "topics_high_only"


def _every(lower: Sequence[Candidate], higher: Sequence[Candidate], options: PairOptions) -> list[Pair]:
    """Every low with every high one, the widest margin first."""
    pairs = [Pair(chosen, rejected) for chosen in lower for rejected in higher]
    fitting = [pair for pair in pairs if _fits(pair, options)]
    return sorted(fitting, key=lambda pair: -pair.margin)[: options.per_topic]


def _extremes(lower: Sequence[Candidate], higher: Sequence[Candidate], options: PairOptions) -> list[Pair]:
    """The lowest with the highest."""
    return _every(lower, higher, options)[:1]


def _progress(lower: Sequence[Candidate], higher: Sequence[Candidate], options: PairOptions) -> list[Pair]:
    """What a role said last with what it said first, where it went from high to low."""
    by_speaker: dict[tuple[Debate, str], list[Candidate]] = {}
    for each in sorted((*lower, *higher), key=lambda each: each.round):
        by_speaker.setdefault((each.debate, each.role), []).append(each)
    turned = [Pair(said[-1], said[0]) for said in by_speaker.values() if said[-1] in lower and said[0] in higher]
    return [pair for pair in turned if _fits(pair, options)][: options.per_topic]


def _fits(pair: Pair, options: PairOptions) -> bool:
    alike = options.length_ratio is None or pair.length_ratio <= options.length_ratio
    return alike and pair.margin >= options.margin


Policy = Callable[[Sequence[Candidate], Sequence[Candidate], PairOptions], list[Pair]]
POLICIES: Mapping[str, Policy] = {"threshold": _every, "max_min": _extremes, "first_last": _progress}


def _held_out(pairs: Sequence[Pair], low: Sequence[Candidate], options: PairOptions) -> frozenset[str]:
    """The test topics: of those with pairs at least one and not all, and the same share of the others."""
    paired = {pair.chosen.debate.topic for pair in pairs}
    if len(paired) < 2:
        raise UsageError(
            "Only one topic gave pairs, so that training or test would be empty; debate more topics, or lower --margin."
        )
    drawn = _drawn(paired, options.seed)
    test = drawn[: min(len(drawn) - 1, max(1, round(options.test_share * len(drawn))))]
    others = _drawn({each.debate.topic for each in low} - paired, options.seed)
    return frozenset([*test, *others[: round(options.test_share * len(others))]])


def _drawn(topics: Iterable[str], seed: int) -> list[str]:
    # By hash, not by a generator: a topic's place does not depend on which others there are.
    return sorted(topics, key=lambda topic: blake2b(f"{seed}/{topic}".encode(), digest_size=8).digest())


def _check_classes(pairs: Sequence[Pair], options: PairOptions, threshold: float, counts: Mapping[str, int]) -> None:
    if pairs:
        return
    usable = counts["low"] + counts["high"]
    if not usable:
        raise UsageError("There is no usable statement in these debates: none was scored, or all were dropped.")
    if not counts["low"] or not counts["high"]:
        missing, found = ("high", "at most") if counts["low"] else ("low", "above")
        raise UsageError(
            f"There is no {missing}-bias statement: all {usable:,} usable scores are {found} {threshold:g}, "
            "and pairs need both; try another --threshold, referee or debater."
        )
    alike = f" and whose lengths differ by a factor of {options.length_ratio:g} at most" if options.length_ratio else ""
    raise UsageError(
        f"No topic has a low and a high statement whose scores differ by {options.margin:g} or more{alike} under the "
        f"policy {options.policy}; lower --margin, or debate more topics."
    )


def _by_topic(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda each: each.debate.topic)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
