"""Fits the weights of `weigh` to a model: its signals on passages of our own, and ridge logistic regression.

The passages answer a question or do not. The fit is cross-validated over their situations.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import orjson
from numpy.typing import NDArray

from evenhand.core import aio
from evenhand.core.errors import DataError
from evenhand.core.progress import Count, counted, ignore
from evenhand.core.types import Sample
from evenhand.data.bbq.generate import builtin_rows
from evenhand.methods.weigh import WeighOptions
from evenhand.methods.weigh.signals import (
    BIAS,
    LEVELS,
    Level,
    Readings,
    Signals,
    SignalWeights,
    WeightsCard,
    read_evidence,
)
from evenhand.models.base import Model
from evenhand.reading.text import abstains
from evenhand.session import Session

_RIDGE = 1.0
_STEPS = 50
_FOLDS = 5
_MOST_UNREAD = 0.5

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Labelled:
    """The signals of one question whose answer is known."""

    signals: Signals
    right: int | None
    """The place of the right person among the people; None if the passage does not say who."""
    group: str
    """Questions of one group are never split between fitting and testing."""


def fit(questions: Sequence[Labelled]) -> Level:
    """The weights under which the labels are most likely; large weights cost."""
    names = list(questions[0].signals.told)
    told = _matrix([each.signals.told for each in questions], names)
    labels = np.array([each.right is not None for each in questions], dtype=float)
    weights = _logistic(np.column_stack([told, np.ones(len(told))]), labels, free=1)
    return Level(told=dict(zip([*names, BIAS], weights.tolist(), strict=True)), who=_fit_who(questions))


def cross_validated(questions: Sequence[Labelled]) -> dict[str, float]:
    """The AUC of `told`, and accuracy in percent, each question weighed by a fit without its group."""
    groups = sorted({each.group for each in questions})
    folds = {group: place % _FOLDS for place, group in enumerate(groups)}
    chances: list[float] = []
    tested: list[Labelled] = []
    right_people = 0
    for fold in range(_FOLDS):
        level = fit([each for each in questions if folds[each.group] != fold])
        weights = SignalWeights("", "", level)
        for each in (each for each in questions if folds[each.group] == fold):
            tested.append(each)
            chances.append(weights.told(each.signals))
            who = weights.who(each.signals)
            right_people += each.right is not None and who.index(max(who)) == each.right and chances[-1] >= 0.5
    told = [chance for each, chance in zip(tested, chances, strict=True) if each.right is not None]
    not_told = [chance for each, chance in zip(tested, chances, strict=True) if each.right is None]
    wins = sum((a > b) + 0.5 * (a == b) for a in told for b in not_told)
    return {
        "auc": round(wins / (len(told) * len(not_told)), 4),
        "told": round(100 * right_people / len(told), 1),
        "not_told": round(100 * sum(chance < 0.5 for chance in not_told) / len(not_told), 1),
    }


def _fit_who(questions: Sequence[Labelled]) -> dict[str, float]:
    """Weights of the differences between the right person and each other one."""
    names = list(questions[0].signals.who[0])
    rows: list[Matrix] = []
    for each in questions:
        if each.right is not None:
            people = _matrix(each.signals.who, names)
            rows += [people[each.right] - other for place, other in enumerate(people) if place != each.right]
    weights = _logistic(np.array(rows), np.ones(len(rows)), free=0)
    return dict(zip(names, weights.tolist(), strict=True))


def _matrix(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> Matrix:
    return np.array([[row[name] for name in names] for row in rows], dtype=float)


def _logistic(features: Matrix, labels: Matrix, free: int) -> Matrix:
    """Newton's method; the penalty is on the columns scaled to unit variance, except for the last `free`."""
    scale: Matrix = np.maximum(np.std(features, axis=0), 1e-6)
    if free:
        scale[-free:] = 1.0
    columns: Matrix = features / scale
    size = len(features.T)
    penalty = np.array([_RIDGE] * (size - free) + [1e-6] * free)
    weights = np.zeros(size, dtype=np.float64)
    for _ in range(_STEPS):
        weights, before = _improved(columns, labels, penalty, weights), weights
        if np.allclose(weights, before, rtol=0, atol=1e-8):
            break
    return np.divide(weights, scale)


def _improved(columns: Matrix, labels: Matrix, penalty: Matrix, weights: Matrix) -> Matrix:
    chances: Matrix = 1 / (1 + np.exp(-np.clip(columns @ weights, -30, 30)))
    slope: Matrix = columns.T @ (labels - chances) - penalty * weights
    spread: Matrix = chances * (1 - chances)
    curve: Matrix = (columns * spread[:, None]).T @ columns + np.diag(penalty)
    return np.add(weights, np.linalg.solve(curve, slope), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class LabelledPassage:
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


def data_hash(chosen: Sequence[LabelledPassage]) -> str:
    rows = [(each.sample.context, each.sample.prompt, each.sample.choices, each.sample.target) for each in chosen]
    return hashlib.sha256(orjson.dumps(rows)).hexdigest()


async def fit_card(
    model: Model,
    chosen: Sequence[LabelledPassage],
    calls: int,
    concurrency: int,
    count: Count = ignore,
) -> WeightsCard:
    """Read the evidence on every passage and fit the weights of every level up to `calls`."""
    found = await _read(model, concurrency, chosen, calls, count)
    read = [(passage, readings) for passage, readings in zip(chosen, found, strict=True) if readings is not None]
    if len(read) < _MOST_UNREAD * len(chosen):
        raise DataError(
            f"only {len(read)} of {len(chosen)} questions were answered in a form that can be read, too few to fit",
            file=model.spec,
        )
    levels = [level for level in LEVELS if level <= calls]
    labelled = {
        level: [Labelled(readings.signals(level), passage.right, passage.group) for passage, readings in read]
        for level in levels
    }
    return WeightsCard(
        model=model.spec,
        date=datetime.now(UTC).date().isoformat(),
        passages=len(read),
        data_sha256=data_hash(chosen),
        fit={level: cross_validated(labelled[level]) for level in levels},
        levels={level: fit(labelled[level]) for level in levels},
    )


async def _read(
    model: Model, concurrency: int, chosen: Sequence[LabelledPassage], calls: int, count: Count
) -> list[Readings | None]:
    """The readings of every passage; None where the model declines or too few replies can be read."""
    one = counted(count, len(chosen))
    # One passage per slot, so that its next call finds the cached prefix of its last one.
    room = asyncio.Semaphore(min(concurrency, model.slots or concurrency))

    async def read(passage: LabelledPassage) -> Readings | None:
        session = Session(passage.sample, {"base": model})
        samples = WeighOptions().samples
        async with room:
            readings = await read_evidence(session, passage.sample, passage.unknown, calls, samples)
        one()
        return readings if isinstance(readings, Readings) and len(readings.unread) < calls / 2 else None

    return await aio.all_of(read(each) for each in chosen)


def built_in_passages(seed: int) -> Iterator[LabelledPassage]:
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
        yield LabelledPassage(sample, unknown, group)
