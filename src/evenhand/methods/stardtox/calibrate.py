"""Calibration of StarDTox's judges: controls, from which the curves of the judge's card are fitted.

The passages are those of `bbq_builtin`, so results on that benchmark are too optimistic. Every second one is held out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from evenhand.core.types import Sample, SampleKind, Unscored
from evenhand.data.bbq.generate import builtin_rows
from evenhand.evaluators.judged import (
    HELPFULNESS,
    SETTLED,
    SUPPORT,
    bias_messages,
    bias_rubric,
    chat_messages,
    chat_rubric,
    p_proved,
    support_messages,
    support_rubric,
    supported_messages,
    supported_rubric,
)
from evenhand.judging.card import Contrast, JudgeTest, rated_by
from evenhand.judging.controls import NONSENSE, OTHER, REFUSAL, SHUFFLED, Control, construct
from evenhand.judging.judge import judge
from evenhand.judging.rubric import Ratings
from evenhand.judging.scorers import QUALITIES, quality_messages, quality_rubric
from evenhand.reading.text import abstains
from evenhand.session import Session

RATED_SUPPORT, RATED_SETTLED = "rated_support", "rated_settled"
"""The evidence rated in numbers, which takes the place of a probability with `evidence=rating` or `support`."""
PASSAGES = 30
"""Number of built-in passages, each judged with and without the fact that settles the question."""
_FLUENT = ("fluency", "coherence")
_LOWERS: Mapping[str, tuple[str, ...]] = {
    SHUFFLED: _FLUENT,
    OTHER: ("relevance", "coherence"),
    NONSENSE: (*_FLUENT, "relevance"),
    REFUSAL: ("relevance",),
}
"""Kind of poor or worthless text → the ratings of a continuation that it lowers."""
_CHAT_LOWERS: Mapping[str, tuple[str, ...]] = {
    SHUFFLED: _FLUENT,
    OTHER: ("relevance", HELPFULNESS),
    NONSENSE: (*_FLUENT, "relevance", HELPFULNESS),
    REFUSAL: (HELPFULNESS,),
}


def contrasts() -> list[Contrast]:
    """Returns the contrasts for all ratings of StarDTox's judges."""
    return [*_proof_jobs(), *_quality_jobs(), *_chat_jobs(), *_harm_jobs()]


def _proof_jobs() -> Iterator[Contrast]:
    """Yields each passage with the fact and without it; the judge is asked about each person in turn."""
    pairs: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in builtin_rows():
        if row["question_polarity"] == "neg":
            pairs.setdefault(f"{row['category']}/{row['question_index']}", {}).setdefault(row["context_condition"], row)
    both = [pair for pair in pairs.values() if len(pair) == 2]
    for number, pair in enumerate(random.Random(0).sample(both, min(PASSAGES, len(both)))):
        for condition in ("disambig", "ambig"):
            yield from _proof_job(pair[condition], held_out=number % 2 == 1)


def _proof_job(row: Mapping[str, Any], *, held_out: bool) -> Iterator[Contrast]:
    options = tuple(str(row[f"ans{index}"]) for index in range(3))
    right = options[int(row["label"])]
    people = [each for each in options if not abstains(each)]
    sample = Sample("contrast", "choice", row["question"], row["context"], options)

    async def rate(session: Session) -> Ratings | Unscored:
        proved: dict[str, float] = {}
        for person in people:
            p = await p_proved(session, sample, person)
            if isinstance(p, Unscored):
                return p
            proved[f"{SUPPORT}/{person}"] = p
        values = {**proved, SETTLED: max(proved.values())}
        return Ratings(values, values)

    by_person = [(f"{SUPPORT}/{person}", person == right) for person in people]
    told = right in people
    control = Control(row["context"], row["question"], "told" if told else "not told", told, held_out=held_out)
    yield Contrast(sample, rate, [(SETTLED, told), *by_person], control)
    yield _rated_job(sample, right if told else people[0], control)


def _rated_job(sample: Sample, person: str, control: Control) -> Contrast:
    """Rates the evidence for a person in numbers: the right one, or any where the passage does not tell."""

    async def rate(session: Session) -> Ratings | Unscored:
        alone = getattr(session.options, "evidence", "") == "support"
        rubric, messages = (supported_rubric, supported_messages) if alone else (support_rubric, support_messages)
        ratings = await judge(session, rubric(), messages(sample, person), agent="judge")
        if isinstance(ratings, Unscored):
            return ratings
        values = {f"rated_{name}": value for name, value in ratings.values.items()}
        return Ratings(values, values)

    return Contrast(sample, rate, [(RATED_SUPPORT, control.high), (RATED_SETTLED, control.high)], control)


def _quality_jobs() -> Iterator[Contrast]:
    for control in construct("continuations").controls:
        names = QUALITIES if control.high else _LOWERS.get(control.kind, ())
        if names:
            sample = Sample("contrast", "completion", control.context)
            messages = quality_messages(control.context, control.text)
            yield rated_by(sample, quality_rubric(), messages, [(name, control.high) for name in names], control)


def _chat_jobs() -> Iterator[Contrast]:
    for control in construct("answers").controls:
        good = control.kind == "high"
        names = (*QUALITIES, HELPFULNESS) if good else _CHAT_LOWERS.get(control.kind, ())
        if names:
            sample = Sample("contrast", "chat", control.context)
            messages = chat_messages(sample, control.text)
            yield rated_by(sample, chat_rubric(), messages, [(name, control.high) for name in names], control)


def _harm_jobs() -> Iterator[Contrast]:
    for control in construct("toxicity").controls:
        sample = Sample("contrast", "completion", control.context)
        messages = bias_messages(control.context, control.text)
        yield rated_by(sample, bias_rubric(), messages, [("harm", control.high)], control)


def _limits(options: Any, kind: SampleKind) -> dict[str, float]:
    """The thresholds of the evaluators that judge this kind of samples; evidence that is rated has no card."""
    if not options.own_evaluators:
        return {}
    if kind == "choice":
        settled: dict[str, float] = {SETTLED if options.evidence == "proof" else RATED_SETTLED: options.settled}
        names: dict[str, float] = {SUPPORT if options.evidence == "proof" else RATED_SUPPORT: options.support}
        names |= {} if options.evidence == "support" else settled
        return {name: limit / 100 for name, limit in names.items()}
    harm: dict[str, float] = {"harm": options.limit("toxicity")} if options.bias == "llm" else {}
    rated = QUALITIES if options.performance and kind == "completion" else ()
    quality: float = options.quality / 100
    return {**harm, **dict.fromkeys(rated, quality)}


CALIBRATION = JudgeTest("judge for stardtox", contrasts, limits=_limits, varies=("reading", "bands", "evidence"))
