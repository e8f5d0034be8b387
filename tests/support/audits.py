"""Audits such as real panels give: one that puts an identity behind, and one with a mitigation that overdoes it."""

from __future__ import annotations

import random

from evenhand.panels import METRICS
from evenhand.panels.findings import (
    ALL,
    COMBINED,
    CONTROL,
    MEASURES,
    Amplification,
    Association,
    Coverage,
    Difference,
    Distribution,
    Gap,
    Influence,
    JudgeCoverage,
    Mean,
    Measure,
    OverCorrection,
    PanelAudit,
    Position,
    Shift,
    Win,
)
from evenhand.stats import Interval

CATEGORIES = {
    "gender": ("female", "male"),
    "race": ("black", "white", "asian", "hispanic"),
    "religion": ("muslim", "jewish", "atheist", "christian"),
}
JUDGES = ("practitioner", "client", "auditor", "teacher")
BEHIND = "male"
FOUND = "female is ahead of male by 0.30 points [0.20, 0.40] (phase 1, adjusted p = 0.002)."


def interval(value: float, width: float = 0.1, n: int = 20) -> Interval:
    return Interval(value, value - width, value + width, n)


def pairs() -> list[tuple[str, str, str]]:
    return [
        (category, x, y)
        for category, identities in CATEGORIES.items()
        for i, x in enumerate(identities)
        for y in identities[i + 1 :]
    ]


def audit(bias: float = 0.3, rounds: int = 2, seed: int = 0) -> PanelAudit:
    """An audit in which `male` gets less by `bias` points."""
    draw = random.Random(seed)
    level = {
        identity: draw.gauss(0, 0.05) - (bias if identity == BEHIND else 0.0)
        for _, i, j in pairs()
        for identity in (i, j)
    }
    level[CONTROL] = 0.0
    category_of = {identity: name for name, each in CATEGORIES.items() for identity in each} | {CONTROL: "control"}
    judges = JUDGES if rounds else JUDGES[:1]

    def gap(measure: Measure, category: str, x: str, y: str, metric: str = COMBINED) -> Gap:
        value = (level[x] - level[y]) / (10 if measure == "wins_2" else 1)
        found = BEHIND in (x, y) and bias != 0
        p = 0.002 if found else 0.6
        width = 0.01 if measure == "wins_2" else 0.1
        primary = metric == COMBINED and y != CONTROL
        return Gap(measure, metric, category, x, y, interval(value, width), 0.05, p / 39, p, value * 3, 200, primary)

    identities = [identity for each in CATEGORIES.values() for identity in each]
    return PanelAudit(
        categories=CATEGORIES,
        authors={identity: f"a {identity} professional" for identity in identities},
        judges=judges,
        rounds=rounds,
        scenarios=200,
        bases=20,
        confidence=0.95,
        means=tuple(
            Mean(identity, category_of[identity], metric, interval(7 + level[identity]), 200)
            for identity in (*identities, CONTROL)
            for metric in (COMBINED, *METRICS)
        ),
        distributions=tuple(
            Distribution(identity, category_of[identity], metric, (0, 0, 0, 1, 4, 15, 40, 90, 40, 9, 1))
            for identity in (*identities, CONTROL)
            for metric in METRICS
        ),
        matrix=tuple(
            Difference(x, y, interval(level[x] - level[y]), 200)
            for i, x in enumerate(identities)
            for y in identities[i + 1 :]
        ),
        gaps=tuple(gap(measure, *pair) for measure in MEASURES for pair in pairs()),
        secondary=tuple(
            [gap("score_1", *pair, metric) for pair in pairs() for metric in METRICS]
            + [gap("score_1", category_of[identity], identity, CONTROL) for identity in identities]
        ),
        detectable={"score_1": 0.13, "score_2": 0.14, "wins_2": 0.05},
        wins=tuple(
            Win(each, category_of[each], interval(0.5 + level[each] / 5, 0.04), interval(0.5, 0.02, 1200), 1200, 300.0)
            for each in identities
        ),
        chi_square=tuple(
            Association(category, metric, 12.3, 9, 0.19, 0.05, 800) for category in CATEGORIES for metric in METRICS
        ),
        position=Position(interval(0.58, 0.03), 0.001, interval(0.12, 0.05), 0.002, 5200),
        shifts=tuple(
            Shift(measure, number, *pair, 0.1, 0.15, interval(0.05))
            for measure in MEASURES
            for number in range(1, rounds + 1)
            for pair in pairs()
        ),
        amplification=tuple(
            Amplification(
                measure,
                number,
                category,
                0.1,
                0.15,
                interval(0.05 * number, 0.06),
                200,
                0.03,
                "amplified" if number == 2 else "undecided",
            )
            for measure in MEASURES
            for number in range(1, rounds + 1)
            for category in (ALL, *CATEGORIES)
        ),
        influence=tuple(
            Influence(listener, judge, interval(0.2 + 0.1 * i, 0.05), 9000)
            for listener in judges
            for i, judge in enumerate(judges)
            if judge != listener
        ),
        coverage=Coverage(
            7400,
            7380,
            5,
            0,
            10,
            5,
            88_560,
            120,
            3,
            tuple(JudgeCoverage(each, 22_140, 30, 0.4 if rounds else None) for each in judges),
        ),
        sentences=(FOUND, "Nothing else was found.") if bias else ("No gap was found.",),
    )


def turned() -> OverCorrection:
    before = next(gap for gap in audit(0.3).gaps if (gap.measure, gap.y) == ("score_1", BEHIND))
    after = next(gap for gap in audit(-0.2).gaps if (gap.measure, gap.y) == ("score_1", BEHIND))
    return OverCorrection(before, after, "reversed", "The gap in favour of female turned into one in favour of male.")
