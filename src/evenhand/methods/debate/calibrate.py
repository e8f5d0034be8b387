"""Calibration of the debate's referee: the better way of scoring and the threshold between high and low bias.

Two statements on one question differ only in their prejudice. They are scored together, in both orders, like the
statements of a round; then each is scored alone by the probability of yes. The texts are our own, and debaters never
see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from evenhand.benchmarks.debates import WORST, Statement
from evenhand.core.types import Sample, Unscored
from evenhand.data.debates import load_topics
from evenhand.judging.card import Calibration, Contrast, JudgeTest
from evenhand.judging.rubric import Ratings
from evenhand.methods.debate.agents import REFEREE, RefereeOptions, judge, odds_of
from evenhand.session import BASE, Session

BY_ODDS = "odds"
_SCORINGS = {REFEREE: "numbers", BY_ODDS: "odds"}
"""Rating → the option `scoring` that it calibrates."""
_SPEAKERS = ("one person", "another person")
_BIASED, _FAIR = f"{REFEREE}/biased", f"{REFEREE}/fair"
"""One reply rates both statements: the first should be high, the second low."""
_HIGHEST = WORST - 0.01
"""`evenhand train pairs` takes thresholds below 10."""


def contrasts() -> list[Contrast]:
    """Returns every pair of statements, scored together in both orders, and every statement scored alone."""
    return [
        each for number, row in enumerate(_rows()) for each in (*_together(number, row), *_by_themselves(number, row))
    ]


def _together(number: int, row: Any) -> Iterator[Contrast]:
    sides = ((_FAIR, str(row["fair"])), (_BIASED, str(row["biased"])))
    # Both orders are shuffled with the same seed, so each statement comes first once.
    for first, second in (sides, sides[::-1]):
        yield _scored_together(_sample(number, row), dict([first, second]))


def _scored_together(sample: Sample, texts: dict[str, str]) -> Contrast:
    async def rate(session: Session) -> Ratings | Unscored:
        said = [Statement(name, 1, text) for name, text in zip(_SPEAKERS, texts.values(), strict=True)]
        verdict = await judge(session.with_options(RefereeOptions()), sample, 1, said)
        if verdict.problem:
            return verdict.problem
        judged = zip(texts, verdict.statements, strict=True)
        scores = {side: each.score / WORST for side, each in judged if each.score is not None}
        return Ratings(scores, scores)

    return Contrast(sample, rate, [(_BIASED, True), (_FAIR, False)])


def _by_themselves(number: int, row: Any) -> Iterator[Contrast]:
    for side, prejudiced in (("biased", True), ("fair", False)):
        yield _scored_by_odds(_sample(number, row), str(row[side]), prejudiced)


def _scored_by_odds(sample: Sample, text: str, prejudiced: bool) -> Contrast:
    async def rate(session: Session) -> Ratings | Unscored:
        probability = await odds_of(session, sample, text, BASE)
        return (
            probability
            if isinstance(probability, Unscored)
            else Ratings({BY_ODDS: probability}, {BY_ODDS: probability})
        )

    return Contrast(sample, rate, [(BY_ODDS, prejudiced)])


def _sample(number: int, row: Any) -> Sample:
    about = load_topics(row["bias"]).about
    return Sample(f"contrast/{number}", "debate", row["question"], metadata={"about": about})


@cache
def _rows() -> list[dict[str, str]]:
    return yaml.safe_load(Path(__file__).with_name("contrasts.yaml").read_text(encoding="utf-8"))


def suggested_options(calibrations: Sequence[Calibration]) -> dict[str, str]:
    """Returns the suggested options of `debate` for this referee; none for a referee at chance."""
    best = _best(calibrations)
    return {} if best is None else {"scoring": _SCORINGS[best.rating]}


def suggested_threshold(calibrations: Sequence[Calibration]) -> float | None:
    """Returns the threshold between high and low bias, 0 to 10, with the suggested options."""
    best = _best(calibrations)
    return None if best is None or best.threshold is None else min(round(WORST * best.threshold, 2), _HIGHEST)


def _commands(calibrations: Sequence[Calibration]) -> list[str]:
    threshold = suggested_threshold(calibrations)
    return [] if threshold is None else [f"evenhand train pairs RUN --threshold {threshold:g}"]


def _best(calibrations: Sequence[Calibration]) -> Calibration | None:
    """Returns the better way of scoring; on a tie numbers, which need no further calls."""
    able = [each for each in calibrations if each.rating in _SCORINGS and each.threshold is not None]
    return max(able, key=lambda each: each.auc or 0, default=None)


CALIBRATION = JudgeTest("referee", contrasts, suggested_options, frozenset({"debate"}), _commands)
