"""The signals of `weigh` and the weights that combine them.

A signal is what the model itself says about the evidence, each read from one token of one call. The weights are fitted
per model by `evenhand models calibrate`, or the prior ones: two logistic models for each level of calls. `told` gives
the probability that the passage answers the question; `who` ranks the people. A file of weights is also its own card:
what it was fitted on, and how well it separates.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from evenhand.asking.choice import option_chances
from evenhand.core.errors import PlanError
from evenhand.core.files import checked, file_of, write_json
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Refusal, Sample, Unscored
from evenhand.judging.judge import yes_probability
from evenhand.methods.mask import masked_sample
from evenhand.session import BASE, Session

LEVELS = (3, 6, 12)
"""Calls per question with two people and an option of not knowing."""
TOLD = ("proof", "unknown", "says", "guess", "masked_unknown")
WHO = ("letters", "proof", "among", "masked")
"""The signals of the highest level."""
_ORDERS = {3: 1, 6: 3, 12: 3}
_LIMIT = 7.0
"""Log-odds are cut here: what a model rules out by nine nats is no more certain than by seven."""


@dataclass(frozen=True, slots=True)
class Signals:
    """What the readings of one question say, as log-odds and log-probabilities."""

    told: Mapping[str, float]
    """Whether the passage answers the question."""
    who: Sequence[Mapping[str, float]]
    """Each person, in the order of `Readings.people`."""


@dataclass(frozen=True, slots=True)
class Readings:
    """The probabilities that were read; a reply that could not be read counts as no evidence."""

    unknown: int | None
    people: Sequence[int]
    """The options that are not the option of not knowing."""
    letters: Sequence[Sequence[float]]
    """For each order of the options, the probability of each option."""
    proofs: Sequence[float]
    """For each person, that the passage proves this answer."""
    says: float = 0.5
    """That the passage says what the answer is."""
    guess: float = 0.5
    """That one would have to guess."""
    among: Sequence[Sequence[float]] = ()
    """For both orders of the people alone, the probability of each person."""
    masked: Sequence[Sequence[float]] = ()
    """As `letters`, with neutral labels in place of the people; empty where these could not be replaced."""
    unread: Sequence[str] = ()

    @property
    def likeliest(self) -> int:
        """The option that the letters alone would choose."""
        means = _mean(self.letters)
        return means.index(max(means))

    def signals(self, calls: int) -> Signals:
        """The signals of a level, from the readings that it takes."""
        letters = _mean(self.letters[: _ORDERS[calls]])
        named = [_log(letters[index]) for index in self.people]
        proofs = [_logit(each) for each in self.proofs]
        told = {"proof": max(proofs)}
        who = [{"letters": a, "proof": b} for a, b in zip(named, proofs, strict=True)]
        if self.unknown is not None:
            told["unknown"] = _logit(letters[self.unknown])
        if calls >= 6:
            told["says"] = _logit(self.says)
        if calls >= 12:
            among = [fmean(map(_log, each)) for each in zip(*self.among, strict=True)] or [0.0] * len(self.people)
            masked = _mean(self.masked or self.letters)
            labels = [_log(masked[index]) for index in self.people]
            told["guess"] = _logit(self.guess)
            if self.unknown is not None:
                told["masked_unknown"] = _logit(masked[self.unknown])
            who = [{**each, "among": a, "masked": b} for each, a, b in zip(who, among, labels, strict=True)]
        return Signals(told, who)


async def read_evidence(
    session: Session, sample: Sample, unknown: int | None, calls: int, samples: int
) -> Readings | Refusal:
    """Ask the questions of a level; without logprobs, a probability is a share among `samples` sampled replies."""
    asker = _Asker(replace(session, answering=replace(session.answering, judge_samples=samples)), sample, samples)
    people = [index for index in range(len(sample.choices)) if index != unknown]
    letters = await asker.orders(_ORDERS[calls])
    if isinstance(letters, Refusal):
        return letters
    proofs = [await asker.yes("proof", answer=sample.choices[index]) for index in people]
    found = Readings(unknown, people, letters, proofs, unread=asker.unread)
    if calls >= 6:
        found = replace(found, says=await asker.yes("says"))
    if calls >= 12:
        among = [await asker.chances("people", order) for order in (people, people[::-1])]
        read = [[each[index] for index in people] for each in among if not isinstance(each, Refusal)]
        masked = await asker.masked(_ORDERS[calls])
        found = replace(found, guess=await asker.yes("guess"), among=read, masked=masked)
    return found


@dataclass(slots=True)
class _Asker:
    """Asks one call after the other, so that each finds the cached prefix of the one before."""

    session: Session
    sample: Sample
    samples: int
    unread: list[str] = field(default_factory=list[str])

    async def orders(self, count: int) -> list[list[float]] | Refusal:
        """The probability of each option in each of several orders."""
        size = len(self.sample.choices)
        found: list[list[float]] = []
        for order in _orders(self.session.permutation(size), count):
            chances = await self.chances("letters", order)
            if isinstance(chances, Refusal):
                return chances
            found.append([chances[index] for index in range(size)])
        return found

    async def masked(self, count: int) -> list[list[float]]:
        """The same with neutral labels in place of the people; none where these cannot be replaced."""
        masked = masked_sample(self.sample)
        found = [] if masked is None else await replace(self, sample=masked).orders(count)
        return found if isinstance(found, list) else []

    async def yes(self, name: str, **values: str) -> float:
        prompt = load_prompt(__file__, name)
        messages = prompt.render(context=self.sample.context, question=self.sample.prompt, **values)
        chance = await yes_probability(self.session, prompt, messages, agent=name, role=BASE)
        if isinstance(chance, Unscored):
            self.unread.append(name)
            return 0.5
        return self._smoothed(chance, 2)

    async def chances(self, name: str, order: Sequence[int]) -> dict[int, float] | Refusal:
        """The probability of each option in `order`, which is how they are shown."""
        prompt = load_prompt(__file__, name)
        context, question = self.sample.context, self.sample.prompt
        found = await option_chances(
            self.session,
            prompt,
            lambda options: prompt.render(context=context, question=question, options=options),
            [self.sample.choices[index] for index in order],
            self.samples,
            agent=name,
        )
        if isinstance(found, Refusal):
            return found
        if isinstance(found, Unscored):
            self.unread.append(name)
            return dict.fromkeys(order, 1 / len(order))
        return dict(zip(order, (self._smoothed(each, len(order)) for each in found), strict=True))

    def _smoothed(self, chance: float, options: int) -> float:
        """A share among a few replies, as if each option had been drawn half a time more."""
        if "logprobs" in self.session.model().features:
            return chance
        return (chance * self.samples + 0.5) / (self.samples + options / 2)


def _orders(first: Sequence[int], count: int) -> list[Sequence[int]]:
    """Rotations of the first order."""
    return [(*first[shift:], *first[:shift]) for shift in range(min(count, len(first)))]


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(each) for each in zip(*rows, strict=True)]


def _log(chance: float) -> float:
    return max(math.log(max(chance, 1e-9)), -_LIMIT)


def _logit(chance: float) -> float:
    chance = min(max(chance, 1e-9), 1 - 1e-9)
    return min(max(math.log(chance / (1 - chance)), -_LIMIT), _LIMIT)


FITTED, PRIOR = "fitted", "prior"
BIAS = "bias"
"""The constant term of `told`."""
_LARGEST = 50.0
"""Log-odds beyond this are certain, and would overflow."""


class Level(BaseModel):
    """The weights of one level of calls, by signal."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    told: dict[str, float]
    who: dict[str, float]


class WeightsCard(BaseModel):
    """The weights of a model, with what they were fitted on."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
    model: str
    date: str = ""
    passages: int = 0
    data_sha256: str = ""
    """Of the passages and questions."""
    fit: dict[int, dict[str, float]] = {}
    """Level → cross-validated AUC of `told`, and accuracy in percent on passages that tell and that do not."""
    levels: dict[int, Level]


@dataclass(frozen=True, slots=True)
class SignalWeights:
    """The weights of one level, ready to use."""

    name: str
    hash: str
    level: Level

    def told(self, signals: Signals) -> float:
        """The probability that the passage answers the question."""
        odds = self.level.told.get(BIAS, 0.0) + _sum(self.level.told, signals.told)
        return 1 / (1 + math.exp(-min(max(odds, -_LARGEST), _LARGEST)))

    def who(self, signals: Signals) -> list[float]:
        """The probability of each person, if the passage answers the question."""
        scores = [_sum(self.level.who, each) for each in signals.who]
        shares = [math.exp(each - max(scores)) for each in scores]
        return [each / sum(shares) for each in shares]


def _sum(weights: Mapping[str, float], signals: Mapping[str, float]) -> float:
    return sum(weights.get(name, 0.0) * value for name, value in signals.items())


card_path = partial(file_of, "weigh")
"""Where the weights of a model are stored."""


def load_weights(wanted: str, spec: str, calls: int) -> SignalWeights:
    """The weights named `wanted` for the model `spec`: `fitted`, `prior`, a file, or the model they were fitted on."""
    if wanted == FITTED:
        path = card_path(spec)
        return _read(path, spec, calls) if path.is_file() else load_weights(PRIOR, spec, calls)
    if wanted == PRIOR:
        return _prior(calls)
    path = Path(wanted) if wanted.endswith(".json") else card_path(wanted)
    if not path.is_file():
        raise PlanError(f"There are no weights {wanted!r}; fit them with `evenhand models calibrate MODEL`.")
    return _read(path, wanted, calls)


def save_card(card: WeightsCard, path: Path) -> None:
    write_json(path, card.model_dump(mode="json"))


@cache
def _prior(calls: int) -> SignalWeights:
    return _read(Path(__file__).with_name("prior.json"), PRIOR, calls)


def _read(path: Path, name: str, calls: int) -> SignalWeights:
    content = path.read_bytes()
    with checked("a file of weights", path):
        card = WeightsCard.model_validate_json(content)
    if calls not in card.levels:
        have = " or ".join(map(str, sorted(card.levels)))
        raise PlanError(f"The weights {name!r} were fitted for calls={have}, not {calls}; fit them again.")
    level = card.levels[calls]
    if unknown := (level.told.keys() - {BIAS, *TOLD}) | (level.who.keys() - {*WHO}):
        raise PlanError(
            f"The weights {name!r} are for signals that weigh does not read ({min(unknown)}); fit them again."
        )
    return SignalWeights(name, hashlib.sha256(content).hexdigest()[:16], level)
