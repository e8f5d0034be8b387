"""The versions of a reasoning that MABRF makes, with their ratings, and which of them is the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.asking.evidence import Evidence
from evenhand.benchmarks.bbq.ratings import FIRST_RATINGS, RATINGS, ReasoningRatings
from evenhand.methods.mabrf.agents import BIAS, RELEVANCY, to_ten
from evenhand.scorers.rubric import Ratings
from evenhand.types import Outcome, Result, Snapshot


@dataclass(frozen=True, slots=True)
class Version:
    """A reasoning with its ratings, and the evidence that it was written with."""

    reasoning: str
    found: Ratings
    evidence: Evidence | None = None

    @property
    def bias(self) -> float:
        return to_ten(self.found.values[BIAS])

    @property
    def relevancy(self) -> float:
        return to_ten(self.found.values[RELEVANCY])

    def ratings(self, accept: float) -> dict[str, Any]:
        return ReasoningRatings(self.bias, self.relevancy, self.bias < accept).note()

    def notes(self, accept: float) -> dict[str, Any]:
        """All that is known about this version, for the trace."""
        written = {name: round(to_ten(value)) for name, value in self.found.written.items()}
        told: dict[str, Any] = {"reasoning": self.reasoning, RATINGS: self.ratings(accept), "written": written}
        told |= {name: text for name, text in self.found.texts.items() if text}
        if self.evidence is not None:
            told["evidence"] = self.evidence.problem or self.evidence.told()
        return told


def best_of(versions: Sequence[Version]) -> Version:
    """The least bias; of equal ones the most relevant, then the earliest."""
    return min(versions, key=lambda version: (round(version.bias, 3), -round(version.relevancy, 3)))


def concluded(
    result: Result, stop: str, first: Result, versions: Sequence[Version], accept: float, **more: Any
) -> Outcome:
    """The outcome of a reasoning's versions; until the end the answer stood as the solver gave it."""
    best = best_of(versions)
    snapshots = [Snapshot(k, first, each.notes(accept)) for k, each in enumerate(versions)]
    notes = {
        "reasoning": best.reasoning,
        "version": versions.index(best),
        RATINGS: best.ratings(accept),
        FIRST_RATINGS: versions[0].ratings(accept),
        **more,
    }
    return Outcome(result, stop, tuple(snapshots), notes)
