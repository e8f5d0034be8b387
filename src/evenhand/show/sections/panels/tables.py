"""An audit of judges for the terminal: findings as sentences; gaps, discussion and coverage as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from evenhand.core.format import count, number, p_value, share
from evenhand.panels.findings import ALL, MEASURES, Amplification, Coverage, Gap, PanelAudit
from evenhand.show.sections.panels.elements import (
    PERCENT,
    POINTS,
    audited,
    difference_text,
    digits_of,
    identity_name,
    pair_name,
    scale_of,
    scaled,
)
from evenhand.show.tables import plain_table, safe_text
from evenhand.studies.audits import MAIN_FINDINGS
from evenhand.studies.results import StudyResult

if TYPE_CHECKING:
    from rich.table import Table


def audit_sentences(study: StudyResult) -> Iterator[str]:
    """Yield the findings that are not among the conclusions, then the gaps that mitigations reversed."""
    for arm, audit in audited(study):
        for sentence in audit.sentences[MAIN_FINDINGS:]:
            yield f"{arm.label}: {sentence}"
    labels = {arm.id: arm.label for arm in study.arms}
    for each in study.corrections:
        for sentence in each.sentences:
            yield f"{labels[each.before]} → {labels[each.after]}: {sentence}"


def audit_tables(study: StudyResult) -> Iterator[Table]:
    """Yield tables of the gaps found, the effect of the discussion, and coverage; none without an audit."""
    audits = [(arm.label, audit) for arm, audit in audited(study)]
    if not audits:
        return
    yield _gaps(audits)
    if any(audit.rounds for _, audit in audits):
        yield _amplification(audits)
    yield _coverage(audits)


Audits = list[tuple[str, PanelAudit]]


def _gaps(audits: Audits) -> Table:
    table = _table(
        "Gaps between identities that were found", "Measure", "Pair", "Difference", "p, adj.", "dz", "n", "Favours"
    )
    for label, audit in audits:
        for gap in audit.found:
            table.add_row(*map(safe_text, [label, *_gap_cells(gap)]))
        if not audit.found:
            table.add_row(safe_text(label), safe_text("none"))
    return table


def _gap_cells(gap: Gap) -> list[str]:
    scale, digits = scale_of(gap.measure), digits_of(gap.measure)
    unit = " %" if scale == PERCENT else ""
    difference = difference_text(scaled(gap.difference, scale), digits) + unit
    tested = [p_value(gap.adjusted), number(gap.effect, POINTS), count(gap.n)]
    return [MEASURES[gap.measure], pair_name(gap), difference, *tested, identity_name(gap.favours or "")]


def _amplification(audits: Audits) -> Table:
    table = _table(
        "Effect of the discussion on the mean gap", "Measure", "Round", "Before", "After", "Change", "p", "Result"
    )
    for label, audit in audits:
        for each in audit.amplification:
            if each.category == ALL and each.change.estimate is not None:
                table.add_row(*map(safe_text, [label, *_amplification_cells(each)]))
    return table


def _amplification_cells(each: Amplification) -> list[str]:
    scale, digits = scale_of(each.measure), digits_of(each.measure)
    values = [number(None if value is None else value * scale, digits) for value in (each.before, each.after)]
    unit = " %" if scale == PERCENT else ""
    change = difference_text(scaled(each.change, scale), digits) + unit
    return [MEASURES[each.measure], str(each.round), *values, change, p_value(each.p_value), each.direction]


def _coverage(audits: Audits) -> Table:
    table = _table("Coverage", "Samples", "Graded", "Judgements", "Unread", "Declined", "Changed nothing")
    for label, audit in audits:
        table.add_row(*map(safe_text, [label, *_coverage_cells(audit.coverage)]))
    return table


def _coverage_cells(counts: Coverage) -> list[str]:
    unchanged = [judge.unchanged for judge in counts.judges if judge.unchanged is not None]
    return [
        count(counts.samples),
        share(counts.graded, counts.samples),
        count(counts.asked),
        share(counts.unread, counts.asked),
        share(counts.declined, counts.asked),
        f"{number(PERCENT * sum(unchanged) / len(unchanged))}%" if unchanged else number(None),
    ]


def _table(title: str, *columns: str) -> Table:
    table = plain_table(title)
    table.add_column("", overflow="fold")
    for column in columns:
        is_text = column in ("Measure", "Pair", "Result", "Favours")
        table.add_column(column, justify="left" if is_text else "right", overflow="fold")
    return table
