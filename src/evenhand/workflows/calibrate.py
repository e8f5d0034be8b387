"""Calibrates models: the weights of the method `weigh`, and the thresholds of judges.

The weights are fitted on passages of our own that answer a question or do not. Half of them are of the built-in
questions, half of the generator of training questions, of situations that models are not trained on. No public
benchmark is used. Judges rate the contrasting texts that methods declare.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

import orjson

from evenhand.core import aio
from evenhand.core.errors import DataError, UsageError
from evenhand.core.progress import Count, ignore
from evenhand.core.types import Sample
from evenhand.data.bbq.generate import builtin_rows
from evenhand.evaluators.calibration import Calibration, JudgeTest, calibrate
from evenhand.evaluators.judge_card import JudgeCard, curve_of
from evenhand.methods.base import METHODS
from evenhand.methods.weigh import WeighOptions
from evenhand.methods.weigh.fit import Labelled, cross_validated, fit
from evenhand.methods.weigh.signals import LEVELS, Readings, read_evidence
from evenhand.methods.weigh.weights import Card
from evenhand.models.base import Model
from evenhand.models.budget import Budget
from evenhand.reading.text import abstains
from evenhand.runs.parts import Settings, opened_model
from evenhand.runs.plan import ModelPlan
from evenhand.session import Session
from evenhand.training.questions.generate import LEAST, Plan, make

LEAST_PASSAGES = 60
"""Fewer leave too few of a kind for each part of the cross-validation."""
_MOST_UNREAD = 0.5


@dataclass(frozen=True, slots=True)
class Passage:
    """A question about a passage, with its right answer."""

    sample: Sample
    unknown: int
    group: str
    """The situation that it tells of."""

    @property
    def right(self) -> int | None:
        """The place of the right person among the people; None if the passage does not say who."""
        people = [index for index in range(len(self.sample.choices)) if index != self.unknown]
        return None if self.sample.target == self.unknown else people.index(self.sample.target)


def passages(count: int, seed: int = 0) -> list[Passage]:
    """Contrast passages of our own, about as many that answer their question as that do not."""
    if count < LEAST_PASSAGES:
        raise UsageError(f"The number of passages must be at least {LEAST_PASSAGES}, not {count}.")
    built_in = list(_built_in(seed))
    first = built_in[: count // 2]
    return [*first, *islice(_generated(seed), count - len(first))]


def data_hash(chosen: Sequence[Passage]) -> str:
    rows = [(each.sample.context, each.sample.prompt, each.sample.choices, each.sample.target) for each in chosen]
    return hashlib.sha256(orjson.dumps(rows)).hexdigest()


async def calibrate_model(
    plan: ModelPlan,
    settings: Settings,
    chosen: Sequence[Passage],
    calls: int,
    count: Count = ignore,
) -> Card:
    """Read the evidence on every passage and fit the weights of every level up to `calls`."""
    async with opened_model(plan, settings, Budget(settings.budget)) as model:
        found = await _read(model, settings.concurrency, chosen, calls, count)
    read = [(passage, readings) for passage, readings in zip(chosen, found, strict=True) if readings is not None]
    if len(read) < _MOST_UNREAD * len(chosen):
        raise DataError(
            f"only {len(read)} of {len(chosen)} questions were answered in a form that can be read, too few to fit",
            file=plan.spec,
        )
    levels = [level for level in LEVELS if level <= calls]
    labelled = {
        level: [Labelled(readings.signals(level), passage.right, passage.group) for passage, readings in read]
        for level in levels
    }
    return Card(
        model=plan.spec,
        date=datetime.now(UTC).date().isoformat(),
        passages=len(read),
        data_sha256=data_hash(chosen),
        fit={level: cross_validated(labelled[level]) for level in levels},
        levels={level: fit(labelled[level]) for level in levels},
    )


async def _read(
    model: Model, concurrency: int, chosen: Sequence[Passage], calls: int, count: Count
) -> list[Readings | None]:
    """The readings of every passage; None where the model declines or too few replies can be read."""
    done = 0
    # One passage per slot, so that its next call finds the cached prefix of its last one.
    gate = asyncio.Semaphore(min(concurrency, model.slots or concurrency))

    async def read(passage: Passage) -> Readings | None:
        nonlocal done
        session = Session(passage.sample, {"base": model})
        samples = WeighOptions().samples
        async with gate:
            readings = await read_evidence(session, passage.sample, passage.unknown, calls, samples)
        done += 1
        count(done, len(chosen))
        return readings if isinstance(readings, Readings) and len(readings.unread) < calls / 2 else None

    return await aio.all_of(read(each) for each in chosen)


def _built_in(seed: int) -> Iterator[Passage]:
    """The built-in questions in random order, each passage with or without the fact that answers it."""
    rows = list(builtin_rows())
    random.Random(seed).shuffle(rows)
    for row in rows:
        options = tuple(row[f"ans{index}"] for index in range(3))
        unknown = next(index for index, option in enumerate(options) if abstains(option))
        group = f"{row['category']}/{row['question_index']}"
        sample = Sample(
            f"{group}/{row['example_id']}", "choice", row["question"], row["context"], options, row["label"]
        )
        yield Passage(sample, unknown, group)


def _generated(seed: int) -> Iterator[Passage]:
    plan = Plan(count=LEAST, seed=seed, forms=("letter",), languages=("en",))
    for number, row in enumerate(make(plan, "dev")):
        if row.context and row.unknown is not None:
            sample = Sample(f"generated/{number}", "choice", row.question, row.context, row.options, row.right)
            yield Passage(sample, row.unknown, row.situation)


Rated = dict[str, tuple[JudgeTest, list[Calibration]]]
"""Method → what its judge should tell apart, and how well the model does."""


async def rate_contrasts(model: Model, count: Count) -> Rated:
    """Rate the texts of every method that declares what its judge should tell apart."""
    methods = [METHODS.get(name) for name in METHODS.names()]
    tests = {each.name: each.calibration for each in methods if each.calibration is not None}
    texts = {name: test.contrasts() for name, test in tests.items()}
    total, done = sum(map(len, texts.values())), 0

    def one(_done: int, _total: int | None) -> None:
        nonlocal done
        done += 1
        count(done, total)

    return {name: (test, await calibrate(model, texts[name], one)) for name, test in tests.items()}


def card_of(model: str, rated: Rated) -> JudgeCard:
    """What the ratings say about the model as a judge."""
    found = [each for _, calibrations in rated.values() for each in calibrations]
    curves = {each.rating: curve_of(each) for each in found}
    options = {name: dict(test.options(calibrations)) for name, (test, calibrations) in rated.items()}
    return JudgeCard(
        model=model,
        date=datetime.now(UTC).date().isoformat(),
        curves={name: curve for name, curve in curves.items() if curve is not None},
        at_chance=tuple(name for name, curve in curves.items() if curve is None),
        options={name: each for name, each in options.items() if each},
        prompts={name: made for each in found for name, made in sorted(each.prompts.items())},
    )
