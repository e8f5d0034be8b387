"""MABRF's rephrasing loop: the versions of a reasoning, their ratings, and the choice of the best one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.asking.evidence import Evidence
from evenhand.benchmarks.bbq.ratings import FIRST_RATINGS, RATINGS, ReasoningRatings
from evenhand.methods.mabrf.agents import BIAS, RELEVANCY, to_ten
from evenhand.methods.mabrf.options import MabrfOptions
from evenhand.scorers.rubric import Ratings
from evenhand.session import Session
from evenhand.types import Outcome, Result, Snapshot, Unscored


@dataclass(frozen=True, slots=True)
class Version:
    """A reasoning with its ratings and the evidence it was written with."""

    reasoning: str
    judgement: Ratings
    evidence: Evidence | None = None

    @property
    def bias(self) -> float:
        return to_ten(self.judgement.values[BIAS])

    @property
    def relevancy(self) -> float:
        return to_ten(self.judgement.values[RELEVANCY])

    @property
    def objection(self) -> str:
        """Why the judge rates it as biased."""
        return self.judgement.texts[f"{BIAS}_reason"]

    def ratings(self, accept: float) -> dict[str, Any]:
        return ReasoningRatings(self.bias, self.relevancy, self.bias < accept).note()

    def notes(self, accept: float) -> dict[str, Any]:
        """Returns everything about this version, for the trace."""
        written = {name: round(to_ten(value)) for name, value in self.judgement.written.items()}
        noted: dict[str, Any] = {"reasoning": self.reasoning, RATINGS: self.ratings(accept), "written": written}
        noted |= {name: text for name, text in self.judgement.texts.items() if text}
        if self.evidence is not None:
            noted["evidence"] = self.evidence.problem or self.evidence.as_text()
        return noted


async def improve(
    session: Session[MabrfOptions],
    versions: list[Version],
    rephrase: Callable[[Version], Awaitable[tuple[str, Evidence | None]]],
    rate: Callable[[str], Awaitable[Ratings | Unscored]],
) -> str:
    """Adds versions until one is free of bias; returns why the loop ended."""
    accept, iterations = session.options.accept, session.options.iterations
    while versions[-1].bias >= accept:
        if len(versions) > iterations:
            return "max_iterations"
        written, evidence = await rephrase(versions[-1])
        if not written:
            return "no_rephrasing"
        if any(written == version.reasoning for version in versions):
            return "unchanged"
        rated = await rate(written)
        if isinstance(rated, Unscored):
            return "unjudged"
        versions.append(Version(written, rated, evidence))
    return "debiased"


def best_of(versions: Sequence[Version]) -> Version:
    """Returns the version with the least bias; on a tie the most relevant, then the earliest."""
    return min(versions, key=lambda version: (round(version.bias, 3), -round(version.relevancy, 3)))


def kept_of(versions: Sequence[Version], options: MabrfOptions) -> Version:
    """Returns the version to answer from."""
    return versions[-1] if options.keep == "last" else best_of(versions)


def concluded(
    result: Result, stop: str, first: Result, versions: Sequence[Version], options: MabrfOptions, **more: Any
) -> Outcome:
    """Returns the outcome. All snapshots have the solver's answer, since only the end result is answered anew."""
    best, accept = kept_of(versions, options), options.accept
    snapshots = [Snapshot(k, first, each.notes(accept)) for k, each in enumerate(versions)]
    notes = {
        "reasoning": best.reasoning,
        "version": versions.index(best),
        RATINGS: best.ratings(accept),
        FIRST_RATINGS: versions[0].ratings(accept),
        **more,
    }
    return Outcome(result, stop, tuple(snapshots), notes)
