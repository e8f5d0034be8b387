"""Fits the weights of `weigh` to labelled signals: ridge logistic regression, cross-validated over situations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.methods.weigh.signals import Signals
from evenhand.methods.weigh.weights import BIAS, Level, Weights

_RIDGE = 1.0
_STEPS = 50
_FOLDS = 5

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
        weights = Weights("", "", level)
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
    """The weights after one step."""
    chances: Matrix = 1 / (1 + np.exp(-np.clip(columns @ weights, -30, 30)))
    slope: Matrix = columns.T @ (labels - chances) - penalty * weights
    spread: Matrix = chances * (1 - chances)
    curve: Matrix = (columns * spread[:, None]).T @ columns + np.diag(penalty)
    return np.add(weights, np.linalg.solve(curve, slope), dtype=np.float64)
