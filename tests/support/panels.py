"""Simulated judges of MALIBU: what they give is known, so it is known what an audit must find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.malibu import grade_of
from evenhand.core.types import Answer, Grade, Outcome, Record, Sample
from evenhand.panels import DELIBERATION, HIGHEST, METRICS, Deliberation, Judgement, candidates_of

METRIC_EFFECTS = np.array([-0.6, 0.5, 0.1, 0.3])


def design(limit: int | None = None, **options: Any) -> list[Sample]:
    """The samples of the benchmark itself."""
    return list(load_benchmark("malibu", **options).samples(Selection(limit)))


@dataclass(frozen=True)
class Judges:
    """A panel whose scores are a scenario's quality, a metric's level, the label's bias and noise, as whole numbers."""

    names: Sequence[str] = ("solo",)
    bias: Mapping[str, float] = field(default_factory=dict)
    """Points that a label adds."""
    noise: float = 1.0
    first: float = 0.0
    """Points for being shown first."""
    rounds: int = 0
    pull: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Share of the distance to a judge that a listener covers in a round; it hears those it has a share for."""
    later_bias: Mapping[str, float] = field(default_factory=dict)
    """Points that every round of discussion adds to a label."""
    level: Mapping[str, float] = field(default_factory=dict)
    """Points that a judge always gives more than others do at first."""
    drift: float = 0.0
    """Points that every round of discussion adds to all scores."""
    steady: bool = False
    """Whether scores stay as they are computed; otherwise they are whole numbers from 0 to 10."""

    def records(self, samples: Sequence[Sample], seed: int) -> list[Record]:
        """What they give for these samples."""
        rng = np.random.default_rng(seed)
        scenarios = sorted({(sample.cluster, sample.metadata["scenario"]) for sample in samples})
        quality = dict(zip(scenarios, rng.normal(7, 0.8, len(scenarios)), strict=True))
        return [self._record(sample, quality[sample.cluster, sample.metadata["scenario"]], rng) for sample in samples]

    def _record(self, sample: Sample, quality: float, rng: np.random.Generator) -> Record:
        candidates = candidates_of(sample)
        labels, later = (
            np.array([bias.get(each.identity, 0.0) for each in candidates])[:, np.newaxis]
            for bias in (self.bias, self.later_bias)
        )
        labels[0] += self.first * (len(candidates) - 1)
        noise = rng.normal(0, self.noise, (len(self.names), len(candidates), len(METRICS)))
        levels = np.array([self.level.get(name, 0.0) for name in self.names])[:, np.newaxis, np.newaxis]
        rounds = [self._given(quality + METRIC_EFFECTS + labels + levels + noise)]
        for _ in range(self.rounds):
            rounds.append(self._given(self._moved(rounds[-1]) + later + self.drift))
        grade = grade_of(sample, Outcome(Answer(""), notes={DELIBERATION: self._deliberation(rounds).note()}))
        assert isinstance(grade, Grade)
        return Record(sample.id, sample.cluster, "graded", sample.metadata, grade.values)

    def _moved(self, scores: np.ndarray) -> np.ndarray:
        moved = scores.copy()
        for (listener, judge), share in self.pull.items():
            at, to = self.names.index(listener), self.names.index(judge)
            moved[at] += share * (scores[to] - scores[at])
        return moved

    def _given(self, scores: np.ndarray) -> np.ndarray:
        return scores if self.steady else np.clip(np.rint(scores), 0, HIGHEST)

    def _deliberation(self, rounds: Sequence[np.ndarray]) -> Deliberation:
        given = [{name: _judgement(each) for name, each in zip(self.names, scores, strict=True)} for scores in rounds]
        heard = {name: tuple(judge for listener, judge in self.pull if listener == name) for name in self.names}
        silence = dict.fromkeys(self.names, ())
        return Deliberation(
            tuple(self.names),
            tuple(given),
            _judgement(rounds[-1].mean(axis=0), [each.winner for each in given[-1].values()]),
            (silence, *[heard] * self.rounds),
        )


def _judgement(scores: np.ndarray, winners: Sequence[float | None] = ()) -> Judgement:
    """The scores as a judgement; the winner has the higher sum, or is what the judges' winners are on average."""
    rows = tuple(tuple(float(score) for score in each) for each in scores)
    if len(rows) == 1:
        return Judgement(rows)
    known = [winner for winner in winners if winner is not None]
    first, second = (sum(each) for each in rows)
    winner = sum(known) / len(known) if known else 0.5 if first == second else float(second > first)
    return Judgement(rows, winner=winner)
