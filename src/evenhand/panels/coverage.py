"""Coverage: the share of requested judgements that were given, by sample and by judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from evenhand.core.types import Record
from evenhand.panels.findings import Coverage, JudgeCoverage


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
