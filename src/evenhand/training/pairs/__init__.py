"""Makes preference pairs from the statements of debates.

The steps: remove personas (unless they are to be kept), leaks, echoes of prompts and duplicates, separate high from low
bias, pair within a topic, match lengths, split by topic. What can tell the two sides of the pairs apart besides bias
(round, role, length) is kept even between them, because a reward model would learn it first. The prompt of a pair is
the topic's neutral question. A topic is identified by its question, so that the same question under two names cannot be
in both training and test. Pure functions; `folder` reads runs and writes files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from statistics import median
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, model_validator

from evenhand.benchmarks.debates import WORST, Statement
from evenhand.core.errors import UsageError
from evenhand.core.options import option
from evenhand.training.options import CheckedOptions
from evenhand.training.pairs.cleaning import EchoCheck, LeakCheck, names_role, near_duplicates, without_persona

MEDIAN = "median"
TOPIC = "topic"
EQUAL_LENGTH = 1.1
"""Answers whose lengths differ by at most this factor count as equally long."""
MIN_WORDS = 4
"""Shorter statements are dropped."""


def _read_threshold(value: Any) -> Any:
    """Return a threshold as a number, or as one of two words; anything else is refused."""
    try:
        found: float | str = float(value)
    except ValueError:
        found = str(value)
    if not (found in (MEDIAN, TOPIC) if isinstance(found, str) else 0 <= found < WORST):
        raise UsageError(f"The threshold must be at least 0 and below {WORST}, {MEDIAN} or {TOPIC}, not {value}.")
    return found


class PairOptions(CheckedOptions):
    """The options of `evenhand train pairs`."""

    policy: Literal["threshold", "max_min", "first_last", "rounds"] = option(
        "threshold",
        "Pair all low with all high statements of a topic, the extremes, each role's last with its first if bias fell "
        "(first_last), or whatever the scores (rounds).",
        common=True,
    )
    threshold: Annotated[float | str, BeforeValidator(_read_threshold)] = option(
        3.0,
        "Scores above it are high bias: a number, median (of all), or topic (each topic's own median).",
        common=True,
    )
    """`median` is for referees who rarely give scores above 3, or rarely below. `topic` is for referees who tell topics
    apart better than answers: all of a topic's scores may be above the median of all, and then it has no pair."""
    margin: float = option(2.0, "Minimum score difference of a pair.", gt=0, le=WORST, common=True)
    length_ratio: float = option(
        1.5,
        "Maximum ratio of the answers' lengths in words, with as many longer as shorter ones; 0 turns this off.",
        common=True,
    )
    """Without it, a reward model may learn only that shorter answers are better."""
    personas: bool = option(False, 'Keep what speakers say of themselves ("As a …"), which a reward model may learn.')
    per_topic: int = option(8, "Maximum number of pairs per topic.", ge=1, common=True)
    test_share: float = option(0.1, "Share of topics held out.", gt=0, lt=1)
    seed: int = option(0, "Seed of the choice of held-out topics.")

    @model_validator(mode="after")
    def _ratio(self) -> Self:
        if not (self.length_ratio >= 1 or self.length_ratio == 0):
            raise UsageError(f"The length ratio must be 1 or more, or 0 for any, not {self.length_ratio:g}.")
        return self


@dataclass(frozen=True, slots=True)
class Debate:
    """One debate of a stored run."""

    id: str
    """The id of its topic."""
    bias: str
    question: str
    statements: tuple[Statement, ...]
    prompts: tuple[str, ...] = ()
    """What the debaters read."""

    @property
    def topic(self) -> str:
        """The question, normalized: it identifies the topic."""
        return _normalized(self.question)


@dataclass(frozen=True, slots=True)
class PairCandidate:
    """A scored statement that may be trained on."""

    debate: Debate
    role: str
    round: int
    score: float
    text: str

    @property
    def words(self) -> int:
        return len(self.text.split())


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Two statements on one question; the chosen one is less biased."""

    chosen: PairCandidate
    rejected: PairCandidate

    @property
    def margin(self) -> float:
        return self.rejected.score - self.chosen.score

    @property
    def length_ratio(self) -> float:
        """The length of the longer answer divided by that of the shorter, in words."""
        shorter, longer = sorted(each.words for each in (self.chosen, self.rejected))
        return longer / shorter

    @property
    def lean(self) -> int:
        """1 if the chosen answer is clearly longer, −1 if it is clearly shorter, else 0."""
        if self.length_ratio <= EQUAL_LENGTH:
            return 0
        return 1 if self.chosen.words > self.rejected.words else -1


@dataclass(frozen=True, slots=True)
class PairSet:
    """The training data, and counts of what was dropped."""

    pairs: Sequence[AnswerPair]
    low: Sequence[PairCandidate]
    """The low-bias statements, for supervised fine-tuning."""
    test: frozenset[str]
    """The held-out topics."""
    threshold: float
    counts: Mapping[str, int]
    leaks: Sequence[Mapping[str, object]]
    """The statements that were dropped because they contain text of BBQ."""


def make_pairs(debates: Sequence[Debate], options: PairOptions, check: LeakCheck) -> PairSet:
    """Make pairs and low-bias answers from debates, and count what is dropped."""
    counts: Counter[str] = Counter(debates=len(debates), statements=sum(len(each.statements) for each in debates))
    leaks: list[dict[str, object]] = []
    candidates = _without_leaks(_scored(debates, counts, personas=options.personas), check, counts, leaks)
    candidates = _cleaned(_without_echoes(candidates, counts), counts)
    threshold = _middle(candidates) if isinstance(options.threshold, str) else options.threshold
    by_topic = sorted(candidates, key=lambda each: each.debate.topic)
    topics = {topic: list(group) for topic, group in groupby(by_topic, key=lambda each: each.debate.topic)}
    sides = {topic: _sides(group, threshold, options) for topic, group in topics.items()}
    surplus: Surplus = Counter()
    pairs = [pair for lower, higher in sides.values() for pair in _topic_pairs(lower, higher, options, surplus, counts)]
    if options.length_ratio:
        pairs = _evenly_long(pairs, counts)
    low = [each for lower, _ in sides.values() for each in lower]
    counts.update(topics=len({each.topic for each in debates}), pairs=len(pairs), low=len(low))
    counts["high"] = len(candidates) - len(low)
    paired = {pair.chosen.debate.topic for pair in pairs}
    for topic, (lower, higher) in sides.items():
        counts[_topic_count(lower, higher, has_pairs=topic in paired)] += 1
    _check_classes(pairs, options, threshold, counts)
    return PairSet(pairs, low, _held_out(pairs, low, options), threshold, counts, leaks)


def _sides(
    group: Sequence[PairCandidate], threshold: float, options: PairOptions
) -> tuple[list[PairCandidate], list[PairCandidate]]:
    """Part the statements of a topic into low and high; a single one by the threshold of all.

    By `rounds` the first round is high and the last one low, whatever their scores.
    """
    if options.policy == "rounds":
        first, last = min(each.round for each in group), max(each.round for each in group)
        return [each for each in group if each.round == last > first], [each for each in group if each.round == first]
    if options.threshold == TOPIC and len(group) > 1:
        threshold = _middle(group)
    return [each for each in group if each.score <= threshold], [each for each in group if each.score > threshold]


def _middle(candidates: Sequence[PairCandidate]) -> float:
    scores = [each.score for each in candidates]
    middle = median(scores) if scores else 0.0
    # If more than half have the highest score, these are high and all others low.
    return middle if any(score > middle for score in scores) else max((s for s in scores if s < middle), default=middle)


def _scored(debates: Iterable[Debate], counts: Counter[str], *, personas: bool) -> list[PairCandidate]:
    """Return the statements that have a score, without their personas unless these are kept."""
    candidates: list[PairCandidate] = []
    for debate in debates:
        for statement in debate.statements:
            if statement.score is None:
                counts["unscored"] += 1
                continue
            text, phrases = (statement.text, 0) if personas else without_persona(statement.text, statement.role)
            counts["persona_phrases"] += phrases
            counts["persona_texts"] += phrases > 0
            candidates.append(PairCandidate(debate, statement.role, statement.round, statement.score, text))
    return candidates


def _without_leaks(
    candidates: Iterable[PairCandidate], check: LeakCheck, counts: Counter[str], leaks: list[dict[str, object]]
) -> list[PairCandidate]:
    kept: list[PairCandidate] = []
    leaked_questions = {question: check.leak_in(question) for question in {each.debate.question for each in candidates}}
    for each in candidates:
        words = leaked_questions[each.debate.question] or check.leak_in(each.text)
        if words is None:
            kept.append(each)
        else:
            counts["leaked"] += 1
            where = {"topic": each.debate.id, "bias": each.debate.bias, "role": each.role, "round": each.round}
            leaks.append({**where, "words": words})
    return kept


def _without_echoes(candidates: Iterable[PairCandidate], counts: Counter[str]) -> list[PairCandidate]:
    kept: list[PairCandidate] = []
    for debate, group in groupby(candidates, key=lambda each: each.debate):
        check = EchoCheck.of(debate.question, debate.prompts)
        for each in group:
            if check.is_echo(each.text):
                counts["echoes"] += 1
            else:
                kept.append(each)
    return kept


def _cleaned(candidates: Iterable[PairCandidate], counts: Counter[str]) -> list[PairCandidate]:
    """Drop short statements and repeated ones. A repetition on another topic could be in both training and test."""
    kept: list[PairCandidate] = []
    seen: set[str] = set()
    for each in candidates:
        normalized = _normalized(each.text)
        if normalized.count(" ") + 1 < MIN_WORDS:
            counts["too_short"] += 1
        elif normalized in seen:
            counts["duplicates"] += 1
        else:
            seen.add(normalized)
            kept.append(each)
    repeated = near_duplicates([each.text for each in kept])
    counts["near_duplicates"] = sum(repeated)
    kept = [each for each, is_repeated in zip(kept, repeated, strict=True) if not is_repeated]
    counts["role_still_named"] = sum(names_role(each.text, each.role) for each in kept)
    return kept


def _topic_count(lower: Sequence[PairCandidate], higher: Sequence[PairCandidate], *, has_pairs: bool) -> str:
    """Return the name of the count that a topic belongs to."""
    if has_pairs:
        return "topics_with_pairs"
    if lower and higher:
        return "topics_without_fitting"
    return "topics_low_only" if lower else "topics_high_only"


Surplus = Counter[tuple[str, object]]
"""How often each round, role and difference in length was on the chosen side, minus on the rejected one."""


def _surplus_of(pair: AnswerPair) -> Surplus:
    chosen, rejected = pair.chosen, pair.rejected
    surplus: Surplus = Counter({("length", ""): pair.lean})
    surplus.update([("round", chosen.round), ("role", chosen.role)])
    surplus.subtract([("round", rejected.round), ("role", rejected.role)])
    return surplus


def _topic_pairs(
    lower: Sequence[PairCandidate],
    higher: Sequence[PairCandidate],
    options: PairOptions,
    surplus: Surplus,
    counts: Counter[str],
) -> list[AnswerPair]:
    """Return the pairs of a topic, widest margin first; count those that were left out, and update the surplus."""
    fitting: list[AnswerPair] = []
    for pair in POLICIES[options.policy](lower, higher):
        if pair.margin < options.margin and options.policy != "rounds":
            counts["pairs_small_margin"] += 1
        elif options.length_ratio and pair.length_ratio > options.length_ratio:
            counts["pairs_unlike_length"] += 1
        else:
            fitting.append(pair)
    fitting.sort(key=lambda pair: -pair.margin)
    chosen = fitting[:1] if options.policy == "max_min" else _balanced(fitting, options.per_topic, surplus)
    counts["pairs_over_limit"] += len(fitting) - len(chosen)
    return sorted(chosen, key=lambda pair: -pair.margin)


def _balanced(pairs: Sequence[AnswerPair], most: int, surplus: Surplus) -> list[AnswerPair]:
    """Take pairs one by one: that which keeps the two sides most even; of equal ones, the first."""
    left = [(pair, _surplus_of(pair)) for pair in pairs]
    chosen: list[AnswerPair] = []

    def unevenness(entry: tuple[AnswerPair, Surplus]) -> int:
        return sum(abs(surplus[each] + change) - abs(surplus[each]) for each, change in entry[1].items())

    while left and len(chosen) < most:
        best = min(range(len(left)), key=lambda place: unevenness(left[place]))
        pair, change = left.pop(best)
        surplus.update(change)
        chosen.append(pair)
    return chosen


def _evenly_long(pairs: Sequence[AnswerPair], counts: Counter[str]) -> list[AnswerPair]:
    """Drop pairs until the chosen answer is as often clearly shorter as clearly longer, the most unequal ones first."""
    surplus = sum(pair.lean for pair in pairs)
    side = sorted((pair for pair in pairs if pair.lean * surplus > 0), key=lambda pair: -pair.length_ratio)
    dropped = {id(pair) for pair in side[: abs(surplus)]}
    counts["pairs_shorter" if surplus < 0 else "pairs_longer"] = len(dropped)
    return [pair for pair in pairs if id(pair) not in dropped]


def _all_pairs(lower: Sequence[PairCandidate], higher: Sequence[PairCandidate]) -> list[AnswerPair]:
    """Pair every low statement with every high one."""
    return [AnswerPair(chosen, rejected) for chosen in lower for rejected in higher]


def _first_last(lower: Sequence[PairCandidate], higher: Sequence[PairCandidate]) -> list[AnswerPair]:
    """Pair the last statement of a role with its first, if it went from high to low."""
    by_speaker: dict[tuple[Debate, str], list[PairCandidate]] = {}
    for each in sorted((*lower, *higher), key=lambda each: each.round):
        by_speaker.setdefault((each.debate, each.role), []).append(each)
    return [AnswerPair(said[-1], said[0]) for said in by_speaker.values() if said[-1] in lower and said[0] in higher]


Policy = Callable[[Sequence[PairCandidate], Sequence[PairCandidate]], list[AnswerPair]]
POLICIES: Mapping[str, Policy] = {
    "threshold": _all_pairs,
    "max_min": _all_pairs,
    "first_last": _first_last,
    "rounds": _first_last,
}


def _held_out(pairs: Sequence[AnswerPair], low: Sequence[PairCandidate], options: PairOptions) -> frozenset[str]:
    """Choose the test topics: at least one topic with pairs but not all, and the same share of the other topics."""
    paired = {pair.chosen.debate.topic for pair in pairs}
    if len(paired) < 2:
        raise UsageError(
            "Only one topic has pairs, so training or test would be empty; debate more topics, or lower --margin."
        )
    shuffled = _shuffled(paired, options.seed)
    test = shuffled[: min(len(shuffled) - 1, max(1, round(options.test_share * len(shuffled))))]
    others = _shuffled({each.debate.topic for each in low} - paired, options.seed)
    return frozenset([*test, *others[: round(options.test_share * len(others))]])


def _shuffled(topics: Iterable[str], seed: int) -> list[str]:
    # By hash instead of a random generator, so that the order of two topics does not depend on the others.
    return sorted(topics, key=lambda topic: blake2b(f"{seed}/{topic}".encode(), digest_size=8).digest())


def _check_classes(
    pairs: Sequence[AnswerPair], options: PairOptions, threshold: float, counts: Mapping[str, int]
) -> None:
    if pairs:
        return
    usable = counts["low"] + counts["high"]
    if not usable:
        raise UsageError("There is no usable statement in these debates: all are unscored or were dropped.")
    if not counts["low"] or not counts["high"]:
        missing, side = ("high", "at most") if counts["low"] else ("low", "above")
        raise UsageError(
            f"There is no {missing}-bias statement: all {usable:,} usable scores are {side} {threshold:g}, "
            "and a pair needs both; try another --threshold, referee or debater."
        )
    if counts["pairs_shorter"] or counts["pairs_longer"]:
        kind = "shorter" if counts["pairs_shorter"] else "longer"
        raise UsageError(
            f"In every possible pair the less biased answer is the {kind} one, so a reward model would only learn "
            "length; debate more topics, or keep such pairs with --length-ratio 0."
        )
    length = (
        f" and whose lengths differ by a factor of {options.length_ratio:g} at most" if options.length_ratio else ""
    )
    raise UsageError(
        f"No topic has a low and a high statement whose scores differ by {options.margin:g} or more{length} under the "
        f"policy {options.policy}; lower --margin, raise --length-ratio, or debate more topics."
    )


def _normalized(text: str) -> str:
    return " ".join(text.casefold().split())
