"""The audit of judges: finds which identities the scores of one arm favour.

The same text is scored with different labels, so differences are paired by scenario. Intervals leave out, and tests
flip, whole base scenarios, since the scenarios derived from one base are not independent.
Coverage is the share of requested judgements that were given, by sample and by judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from evenhand.core.types import Record
from evenhand.panels.arrays import Estimator, Judged, judged
from evenhand.panels.discussion import amplifications, influences, shifts
from evenhand.panels.findings import MEASURES, Coverage, Gap, JudgeCoverage, OverCorrection, PanelAudit, Turn
from evenhand.panels.gaps import (
    associations,
    detectable,
    distributions,
    matrix,
    means,
    position,
    primary_gaps,
    secondary_gaps,
    wins,
)
from evenhand.panels.sentences import sentences_of, turned_sentence

_FLIPS = 10_000
_FLIPS_PER_TEST = 100
"""Enough that the smallest p-value survives the correction for any number of identities."""


def audit(records: Sequence[Record], *, seed: int = 0, confidence: float = 0.95) -> PanelAudit:
    """Returns all findings on one arm; records without a grade count only in the coverage."""
    values = judged(records)
    tests = _tests(values)
    flips = max(_FLIPS, _FLIPS_PER_TEST * tests)
    estimator = Estimator(values.base_of, values.bases, flips, confidence, seed)
    gaps = primary_gaps(values, estimator)
    found = PanelAudit(
        categories=values.categories,
        authors=values.authors,
        judges=values.judges,
        rounds=values.rounds,
        scenarios=len(values.base_of),
        bases=values.bases,
        confidence=confidence,
        means=means(values, estimator),
        distributions=distributions(values),
        matrix=matrix(values, estimator),
        gaps=gaps,
        secondary=secondary_gaps(values, estimator),
        detectable={measure: detectable(gaps, measure, estimator) for measure in MEASURES},
        wins=wins(values, estimator),
        chi_square=associations(values),
        position=position(values, estimator),
        shifts=shifts(values, estimator),
        amplification=amplifications(values, estimator),
        influence=influences(records, values.judges, estimator),
        coverage=coverage(records, values.judges),
    )
    return replace(found, sentences=sentences_of(found))


def over_correction(before: PanelAudit, after: PanelAudit) -> tuple[OverCorrection, ...]:
    """Returns the gaps in `after` that favour the identity that was behind in `before`."""
    earlier = {(gap.measure, gap.x, gap.y): gap for gap in before.gaps}
    found: list[OverCorrection] = []
    for gap in after.found:
        was = earlier.get((gap.measure, gap.x, gap.y))
        if was is not None and _turned(was, gap):
            kind: Turn = "reversed" if was.found else "new"
            found.append(OverCorrection(was, gap, kind, turned_sentence(was, gap, kind, after.authors)))
    return tuple(found)


def _turned(before: Gap, after: Gap) -> bool:
    return before.favours is not None and before.favours != after.favours


def _tests(values: Judged) -> int:
    """Returns an upper bound of the size of the larger family of tests, the secondary one."""
    return 10 * len(values.pairs) + len(values.identities)


def coverage(records: Sequence[Record], judges: Sequence[str]) -> Coverage:
    """Counts samples by status, and requested and missing judgements."""
    statuses = Counter(record.status for record in records)
    grades = [record.grade for record in records if record.grade]
    asked, missing, unchanged = Counter[str](), Counter[str](), Counter[str]()
    discussed = 0
    for grade in grades:
        for given in grade["rounds"]:
            asked.update(given.keys())
            missing.update(judge for judge, scores in given.items() if scores is None)
        unchanged.update(grade["unchanged"])
        discussed += len(grade["rounds"]) > 1
    return Coverage(
        len(records),
        statuses["graded"],
        statuses["refused"],
        statuses["cut"],
        statuses["unscored"],
        statuses["failed"],
        sum(grade["given"] for grade in grades),
        sum(grade["unread"] for grade in grades),
        sum(grade["declined"] for grade in grades),
        tuple(
            JudgeCoverage(judge, asked[judge], missing[judge], unchanged[judge] / discussed if discussed else None)
            for judge in judges
        ),
    )
