"""The section on hiring: selection rates and impact ratios by sex, race and both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evenhand.benchmarks.hiring import HiringAudit, Rate
from evenhand.core.format import count, number, p_value
from evenhand.show.markup import Html, tag
from evenhand.show.page import section, sentences
from evenhand.show.sections import Section, add_section
from evenhand.show.table import Content, Table, columns, html_of, interval_cell
from evenhand.show.view import View, arm_name
from evenhand.studies.audits import MAIN_FINDINGS
from evenhand.studies.results import ArmResult, StudyResult

_COLUMNS = columns("By", "Group", "Selected", "Shown", "Rate, %", "Impact ratio", "p, adjusted", words=2)


def _audited(study: StudyResult) -> list[tuple[ArmResult, HiringAudit]]:
    return [(arm, arm.audit) for arm in study.arms if isinstance(arm.audit, HiringAudit)]


def selection(view: View) -> Html | None:
    """Return the rates of every arm."""
    arms = _audited(view.study)
    if not arms:
        return None
    lead = "Every group had every résumé equally often. The impact ratio is a group's selection rate divided by the "
    lead += "highest rate. Four fifths (0.8) is a rule of thumb of US agencies, no threshold of law. The p-value is of "
    lead += "“all groups are chosen equally often”, corrected by Holm."
    blocks = [
        tag(
            "div",
            tag("h3", arm_name(view, arm)),
            sentences(audit.sentences),
            html_of(_rates(arm, audit)),
            class_="findings",
        )
        for arm, audit in arms
    ]
    return section("selection", "Selection", lead, blocks)


def _rates(arm: ArmResult, audit: HiringAudit) -> Table:
    return Table(f"Selection rates: {arm.label}", _COLUMNS, [_cells(audit, each) for each in audit.rates])


def _cells(audit: HiringAudit, each: Rate) -> list[Content]:
    return [
        each.by,
        each.group,
        count(each.selected),
        count(each.shown),
        interval_cell(each.rate, 100),
        number(each.ratio, 2),
        p_value(audit.p_values[each.by]),
    ]


def _tables(study: StudyResult) -> Iterator[Table]:
    return (_rates(arm, audit) for arm, audit in _audited(study))


def _sentences(study: StudyResult) -> Sequence[str]:
    return [f"{arm.label}: {said}" for arm, audit in _audited(study) for said in audit.sentences[MAIN_FINDINGS:]]


add_section(Section("selection", "Selection", selection, tables=_tables, sentences=_sentences))
