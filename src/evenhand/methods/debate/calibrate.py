"""Statements that the debate's referee should tell apart, and how its scores are best read and cut.

Two statements on one question differ in their prejudice alone. They are scored together, as those of a round are, in
both orders; then each alone, by the odds of yes. The texts are ours, and debaters never see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from evenhand.benchmarks.debates.records import WORST, Statement
from evenhand.data.debates import load_topics
from evenhand.evaluators.calibration import Calibration, Contrast, JudgeTest
from evenhand.methods.debate.options import RefereeOptions
from evenhand.methods.debate.referee import REFEREE, judge, odds_of
from evenhand.scorers.rubric import Ratings
from evenhand.session import BASE, Session
from evenhand.types import Sample, Unscored

BY_ODDS = "odds"
_SCORINGS = {REFEREE: "numbers", BY_ODDS: "odds"}
"""The option `scoring` by the rating that speaks for it."""
_SPEAKERS = ("one person", "another person")
_BIASED, _FAIR = f"{REFEREE}/biased", f"{REFEREE}/fair"
"""One reply rates both statements, the one that should be high and the one that should be low."""
_HIGHEST = WORST - 0.01
"""`evenhand pairs` takes thresholds below 10."""


def contrasts() -> list[Contrast]:
    """Every statement scored beside its opposite, in both orders, and alone."""
    return [
        each for number, row in enumerate(_rows()) for each in (*_together(number, row), *_by_themselves(number, row))
    ]


def _together(number: int, row: Any) -> Iterator[Contrast]:
    sides = ((_FAIR, str(row["fair"])), (_BIASED, str(row["biased"])))
    # The draw that orders the statements is the same for both, so that each of them stands first once.
    for first, second in (sides, sides[::-1]):
        yield _scored_together(_sample(number, row), dict([first, second]))


def _scored_together(sample: Sample, texts: dict[str, str]) -> Contrast:
    async def rate(session: Session) -> Ratings | Unscored:
        said = [Statement(name, 1, text) for name, text in zip(_SPEAKERS, texts.values(), strict=True)]
        verdict = await judge(session.with_options(RefereeOptions()), sample, 1, said)
        if verdict.problem:
            return Unscored(verdict.problem)
        judged = zip(texts, verdict.statements, strict=True)
        scores = {side: each.score / WORST for side, each in judged if each.score is not None}
        return Ratings(scores, scores)

    return Contrast(sample, rate, [(_BIASED, True), (_FAIR, False)])


def _by_themselves(number: int, row: Any) -> Iterator[Contrast]:
    for side, prejudiced in (("biased", True), ("fair", False)):
        yield _scored_by_odds(_sample(number, row), str(row[side]), prejudiced)


def _scored_by_odds(sample: Sample, text: str, prejudiced: bool) -> Contrast:
    async def rate(session: Session) -> Ratings | Unscored:
        found = await odds_of(session, sample, text, BASE)
        return found if isinstance(found, Unscored) else Ratings({BY_ODDS: found}, {BY_ODDS: found})

    return Contrast(sample, rate, [(BY_ODDS, prejudiced)])


def _sample(number: int, row: Any) -> Sample:
    about = load_topics(row["bias"]).about
    return Sample(f"contrast/{number}", "debate", row["question"], metadata={"about": about})


@cache
def _rows() -> list[dict[str, str]]:
    return yaml.safe_load(Path(__file__).with_name("contrasts.yaml").read_text(encoding="utf-8"))


def suggested_options(found: Sequence[Calibration]) -> dict[str, str]:
    """The debate's options for a referee with these calibrations; a referee at chance gives none."""
    best = _better(found)
    return {} if best is None else {"scoring": _SCORINGS[best.rating]}


def suggested_threshold(found: Sequence[Calibration]) -> float | None:
    """Where to part high from low bias, from 0 to 10, under these options."""
    best = _better(found)
    return None if best is None or best.threshold is None else min(round(WORST * best.threshold, 2), _HIGHEST)


def _commands(found: Sequence[Calibration]) -> list[str]:
    threshold = suggested_threshold(found)
    return [] if threshold is None else [f"evenhand pairs RUN --threshold {threshold:g}"]


def _better(found: Sequence[Calibration]) -> Calibration | None:
    """The way to score that tells statements apart best; of equal ones numbers, which cost no further calls."""
    able = [each for each in found if each.rating in _SCORINGS and each.threshold is not None]
    return max(able, key=lambda each: each.auc or 0, default=None)


CALIBRATION = JudgeTest("referee", contrasts, suggested_options, _commands)
