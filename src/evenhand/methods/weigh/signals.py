"""The signals of `weigh`: what the model itself says about the evidence, each read from one token of one call."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from evenhand.asking.choice import option_chances
from evenhand.asking.yes_no import yes_probability
from evenhand.prompts import load_prompt
from evenhand.session import BASE, Session
from evenhand.types import Refusal, Sample, Unscored

LEVELS = (3, 6, 12)
"""Calls per question with two people and an option of not knowing."""
_ORDERS = {3: 1, 6: 3, 12: 6}
_LIMIT = 7.0
"""Log-odds are cut here: what a model rules out by nine nats is no more certain than by seven."""


@dataclass(frozen=True, slots=True)
class Signals:
    """What was measured on one question; a reply that could not be read counts as no evidence."""

    told: Mapping[str, float]
    """Signals on whether the passage answers the question."""
    who: Sequence[Mapping[str, float]]
    """Signals on each person, in the order of `people`."""
    people: Sequence[int]
    """The options that are not the option of not knowing."""
    unread: Sequence[str] = field(default=())


async def measure(session: Session, sample: Sample, unknown: int | None, calls: int, samples: int) -> Signals | Refusal:
    """Ask for the signals of a level; without logprobs, each is the share among `samples` sampled replies."""
    asker = _Asker(replace(session, answering=replace(session.answering, judge_samples=samples)), sample, samples)
    people = [index for index in range(len(sample.choices)) if index != unknown]
    letters = await asker.letters(calls)
    if isinstance(letters, Refusal):
        return letters
    proofs = [await asker.yes("proof", answer=sample.choices[index]) for index in people]
    told = {"proof": max(proofs), "gap": _lead(proofs), "lead": _lead([_log(letters[index]) for index in people])}
    if unknown is not None:
        told["unknown"] = _logit(letters[unknown])
    who = [
        {"letters": _log(letters[index]), "proof": proof} for index, proof in zip(people, proofs, strict=True)
    ]
    if calls >= 6:
        told["says"] = await asker.yes("says")
    if calls >= 12:
        told["guess"] = await asker.yes("guess")
        among = await asker.among(people)
        told["choice"] = _lead(among)
        who = [{**each, "choice": chance} for each, chance in zip(who, among, strict=True)]
    return Signals(told, who, people, tuple(asker.unread))


@dataclass(slots=True)
class _Asker:
    """Asks one call after the other, so that each finds the cached prefix of the one before."""

    session: Session
    sample: Sample
    samples: int
    unread: list[str] = field(default_factory=list[str])

    async def letters(self, calls: int) -> list[float] | Refusal:
        """The mean probability of each option over several orders of the options."""
        size = len(self.sample.choices)
        orders = _orders(self.session.permutation(size), _ORDERS[calls])
        found: list[list[float]] = []
        for order in orders:
            chances = await self._chances("letters", order)
            if isinstance(chances, Refusal):
                return chances
            if chances is not None:
                found.append(chances)
        return [fmean(each) for each in zip(*found, strict=True)] if found else [1 / size] * size

    async def among(self, people: Sequence[int]) -> list[float]:
        """The mean log-probability of each person in both orders of the people alone."""
        found = [
            chances
            for order in (people, list(reversed(people)))
            if isinstance(chances := await self._chances("people", order), list)
        ]
        return [fmean(_log(each[index]) for each in found) if found else 0.0 for index in people]

    async def yes(self, name: str, **values: str) -> float:
        """The log-odds of yes; 0 where neither yes nor no could be read."""
        prompt = load_prompt(__file__, name)
        messages = prompt.render(context=self.sample.context, question=self.sample.prompt, **values)
        chance = await yes_probability(self.session, prompt, messages, agent=name, role=BASE)
        if isinstance(chance, Unscored):
            self.unread.append(name)
            return 0.0
        return _logit(self._smoothed(chance, 2))

    async def _chances(self, name: str, order: Sequence[int]) -> list[float] | Refusal | None:
        """The probability of every option of the sample, 0 for those that are not shown."""
        prompt = load_prompt(__file__, name)
        sample = self.sample
        shown = [sample.choices[index] for index in order]
        chances = await option_chances(
            self.session,
            prompt,
            lambda options: prompt.render(context=sample.context, question=sample.prompt, options=options),
            shown,
            self.samples,
            agent=name,
        )
        if isinstance(chances, Refusal):
            return chances
        if isinstance(chances, Unscored):
            self.unread.append(name)
            return None
        by_option = dict(zip(order, (self._smoothed(each, len(order)) for each in chances), strict=True))
        return [by_option.get(index, 0.0) for index in range(len(sample.choices))]

    def _smoothed(self, chance: float, options: int) -> float:
        """A share among a few replies, as if each option had been drawn half a time more."""
        if "logprobs" in self.session.model(BASE).features:
            return chance
        return (chance * self.samples + 0.5) / (self.samples + options / 2)


def _orders(first: Sequence[int], count: int) -> list[Sequence[int]]:
    """Rotations of the first order, then their reversals."""
    rotations = [(*first[shift:], *first[:shift]) for shift in range(len(first))]
    return [*rotations, *(tuple(reversed(each)) for each in rotations)][:count]


def _lead(values: Sequence[float]) -> float:
    """How far the largest value is above the second."""
    best = sorted(values, reverse=True)
    return best[0] - best[1] if len(best) > 1 else 0.0


def _log(chance: float) -> float:
    return max(math.log(max(chance, 1e-9)), -_LIMIT)


def _logit(chance: float) -> float:
    chance = min(max(chance, 1e-9), 1 - 1e-9)
    return min(max(math.log(chance / (1 - chance)), -_LIMIT), _LIMIT)
