"""MABRF's rephrasing loop: the versions of a reasoning, their ratings, and the choice of the best one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.asking.evidence import Evidence
from evenhand.benchmarks.bbq.ratings import FIRST_RATINGS, RATINGS, ReasoningRatings
from evenhand.core.types import Outcome, Result, Snapshot, Unscored
from evenhand.methods.mabrf.agents import BIAS, GROUNDED, KINDS, RELEVANCY, Judgement, to_ten
from evenhand.methods.mabrf.options import MabrfOptions
from evenhand.session import Session


@dataclass(frozen=True, slots=True)
class Version:
    """A reasoning with its ratings and the evidence it was written with."""

    reasoning: str
    judgement: Judgement
    evidence: Evidence | None = None

    @property
    def relevancy(self) -> float:
        return to_ten(self.judgement.ratings.values[RELEVANCY])

    @property
    def objection(self) -> str:
        """What the judge objects to: the bias, or the lack of ground if that is the larger fault."""
        texts = self.judgement.ratings.texts
        first, second = (BIAS, GROUNDED) if self.judgement.by_bias else (GROUNDED, BIAS)
        return texts[f"{first}_reason"] or texts[f"{second}_reason"]

    def ratings(self) -> dict[str, Any]:
        values = {name: to_ten(value) for name, value in self.judgement.ratings.values.items()}
        kinds = {kind: values[kind] for kind in KINDS}
        return ReasoningRatings(values[BIAS], self.relevancy, self.judgement.accepted, values[GROUNDED], kinds).note()

    def notes(self) -> dict[str, Any]:
        """Returns everything about this version, for the trace."""
        written = {name: round(to_ten(value)) for name, value in self.judgement.ratings.written.items()}
        noted: dict[str, Any] = {"reasoning": self.reasoning, RATINGS: self.ratings(), "written": written}
        noted |= {name: text for name, text in self.judgement.ratings.texts.items() if text}
        if self.evidence is not None:
            noted["evidence"] = self.evidence.problem or self.evidence.as_text()
        return noted


async def improve(
    session: Session[MabrfOptions],
    versions: list[Version],
    rephrase: Callable[[Version], Awaitable[tuple[str, Evidence | None]]],
    rate: Callable[[str, Evidence | None], Awaitable[Judgement | Unscored]],
) -> str:
    """Adds versions until one is free of faults; returns why the loop ended."""
    while not versions[-1].judgement.accepted:
        if len(versions) > session.options.iterations:
            return "max_iterations"
        written, evidence = await rephrase(versions[-1])
        if not written:
            return "no_rephrasing"
        if any(written == version.reasoning for version in versions):
            return "unchanged"
        rated = await rate(written, evidence)
        if isinstance(rated, Unscored):
            return "unjudged"
        versions.append(Version(written, rated, evidence))
        if _stalled(versions, session.options.patience):
            return "no_better"
    return "debiased"


def _stalled(versions: Sequence[Version], patience: int) -> bool:
    """Whether the last `patience` rewrites are no better than the best version before them."""
    if not 0 < patience < len(versions) or versions[-1].judgement.accepted:
        return False
    least = [round(version.judgement.fault, 2) for version in versions]
    return min(least[-patience:]) >= min(least[:-patience])


def best_of(versions: Sequence[Version]) -> Version:
    """Returns the version that is accepted, else the one with the least fault; then the most relevant, the earliest."""

    def rank(version: Version) -> tuple[bool, float, float]:
        judgement = version.judgement
        return not judgement.accepted, round(judgement.fault, 3), -round(version.relevancy, 3)

    return min(versions, key=rank)


def kept_of(versions: Sequence[Version], options: MabrfOptions) -> Version:
    """Returns the version to answer from."""
    return versions[-1] if options.keep == "last" else best_of(versions)


def concluded(
    result: Result, stop: str, first: Result, versions: Sequence[Version], best: Version, **more: Any
) -> Outcome:
    """Returns the outcome. All snapshots have the solver's answer, since only the end result is answered anew."""
    snapshots = [Snapshot(k, first, each.notes()) for k, each in enumerate(versions)]
    notes = {
        "reasoning": best.reasoning,
        "version": versions.index(best),
        RATINGS: best.ratings(),
        FIRST_RATINGS: versions[0].ratings(),
        **more,
    }
    return Outcome(result, stop, tuple(snapshots), notes)
