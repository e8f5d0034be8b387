"""The section on hiring: selection rates and impact ratios by sex, race and both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from evenhand.benchmarks.hiring import HiringAudit, Rate
from evenhand.core.format import count, limits, number, p_value
from evenhand.show.markup import Html, tag
from evenhand.show.sections.base import Section, add_section
from evenhand.show.sections.elements import arm_name, section, table
from evenhand.show.tables import plain_table, safe_text
from evenhand.show.view import View
from evenhand.studies.audits import MAIN_FINDINGS
from evenhand.studies.results import ArmResult, StudyResult

if TYPE_CHECKING:
    from rich.table import Table

_HEAD = ("By", "Group", "Selected", "Shown", "Rate, %", "Impact ratio", "p, adjusted")


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
            tag("ul", [tag("li", sentence) for sentence in audit.sentences], class_="sentences"),
            table(list(_HEAD), [_cells(audit, each) for each in audit.rates], f"{arm.label}: selection", "numbers"),
            class_="findings",
        )
        for arm, audit in arms
    ]
    return section("selection", "Selection", lead, blocks)


def _cells(audit: HiringAudit, each: Rate) -> list[str]:
    low, high = each.rate.low, each.rate.high
    between = limits(None if low is None else 100 * low, None if high is None else 100 * high)
    rate = None if each.rate.estimate is None else 100 * each.rate.estimate
    return [
        each.by,
        each.group,
        count(each.selected),
        count(each.shown),
        f"{number(rate)} {between}",
        number(each.ratio, 2),
        p_value(audit.p_values[each.by]),
    ]


def _tables(study: StudyResult) -> Iterator[Table]:
    for arm, audit in _audited(study):
        shown = plain_table(f"Selection rates: {arm.label}")
        for column in _HEAD:
            shown.add_column(column, justify="left" if column in _HEAD[:2] else "right", no_wrap=column == "Group")
        for each in audit.rates:
            shown.add_row(*map(safe_text, _cells(audit, each)))
        yield shown


def _sentences(study: StudyResult) -> Sequence[str]:
    return [f"{arm.label}: {said}" for arm, audit in _audited(study) for said in audit.sentences[MAIN_FINDINGS:]]


add_section(Section("selection", "Selection", selection, tables=_tables, sentences=_sentences))
