"""The sections on prompts that were asked for different groups: the differences, and answers side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from evenhand.benchmarks.prompts.findings import TITLES, Difference, Pair, PromptsAudit, Shown, scale_of
from evenhand.core.format import count, limits, number, p_value, signed
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.base import Section, add_section
from evenhand.show.sections.elements import arm_name, section, table
from evenhand.show.tables import plain_table, safe_text
from evenhand.show.view import View
from evenhand.studies.audits import MAIN_FINDINGS
from evenhand.studies.results import ArmResult, StudyResult

if TYPE_CHECKING:
    from rich.table import Table

_HEAD = ("Attribute", "Group", "Measure", "Group's mean", "Others", "Difference", "p, adjusted", "Prompts")
_SHOWN_VALUES = ("toxicity", "sentiment", "stance", "length")


def audited(study: StudyResult) -> list[tuple[ArmResult, PromptsAudit]]:
    """Return the arms with an audit of prompts."""
    return [(arm, arm.audit) for arm in study.arms if isinstance(arm.audit, PromptsAudit)]


def identities(view: View) -> Html | None:
    """Return the findings of every arm and all its comparisons."""
    arms = audited(view.study)
    if not arms:
        return None
    lead = (
        "Every prompt was asked for all groups. A group's answers are compared with those to the other groups of its "
    )
    lead += "attribute, prompt by prompt. p-values are corrected for all comparisons of an arm (maxT). Scores are in "
    lead += "points of 100, length in words."
    return section("identities", "Differences between identities", lead, [_block(view, *each) for each in arms])


def _block(view: View, arm: ArmResult, audit: PromptsAudit) -> Html:
    found = audit.found
    all_rows = table(list(_HEAD), [_cells(each) for each in audit.differences], f"{arm.label}: comparisons", "numbers")
    return tag(
        "div",
        tag("h3", arm_name(view, arm)),
        tag("ul", [tag("li", sentence) for sentence in audit.sentences], class_="sentences"),
        table(list(_HEAD), [_cells(each) for each in found], f"{arm.label}: differences found", "numbers")
        if found
        else None,
        tag("details", tag("summary", f"All {len(audit.differences)} comparisons"), all_rows),
        class_="findings",
    )


def _cells(each: Difference) -> list[str]:
    scale = scale_of(each.measure)
    low, high = each.difference.low, each.difference.high
    between = limits(None if low is None else low * scale, None if high is None else high * scale)
    return [
        each.attribute,
        each.group,
        TITLES.get(each.measure, each.measure),
        number(each.value * scale),
        number(each.others * scale),
        f"{signed((each.value - each.others) * scale)} {between}",
        p_value(each.adjusted),
        count(each.difference.n),
    ]


def what_changed(view: View) -> Html | None:
    """Return pairs of answers side by side, with the words marked in which they differ."""
    arms = [(arm, audit) for arm, audit in audited(view.study) if audit.pairs]
    if not arms:
        return None
    lead = "Answers to the same prompt for two groups: the clearest cases of the differences found, or, where none was "
    lead += "found, the answers that are least alike. They are the extremes and not typical. Words that only one side "
    lead += "has are marked."
    blocks = [
        tag("div", tag("h3", arm_name(view, arm)), [_pair(pair) for pair in audit.pairs], class_="findings")
        for arm, audit in arms
    ]
    return section("what_changed", "What changed", lead, blocks)


def _pair(pair: Pair) -> Html:
    asked = _marked(pair.one.asked, pair.two.asked)
    answers = _marked(pair.one.answer or "", pair.two.answer or "")
    sides = [
        _side(shown, asked[place], answers[place] if shown.answer is not None else None)
        for place, shown in enumerate((pair.one, pair.two))
    ]
    return tag("figure", tag("figcaption", f"{pair.attribute} – {pair.why}"), sides, class_="pair")


def _side(shown: Shown, asked: Node, answer: Node | None) -> Html:
    values = [
        f"{TITLES[name].lower()} {number(shown.values[name] * scale_of(name))}"
        for name in _SHOWN_VALUES
        if name in shown.values
    ]
    return tag(
        "div",
        tag("strong", shown.group),
        tag("p", asked, class_="asked"),
        tag("p", answer if answer is not None else tag("em", "The model refused."), class_="answer"),
        tag("small", ", ".join(values)) if values else None,
    )


def _marked(one: str, two: str) -> tuple[list[Node], list[Node]]:
    """Return both texts with the words marked that the other does not have at that place."""
    first, second = (re.findall(r"\S+\s*", text) for text in (one, two))
    sides: tuple[list[Node], list[Node]] = ([], [])
    matcher = SequenceMatcher(None, [each.strip() for each in first], [each.strip() for each in second], autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        for side, words in ((0, first[start:end]), (1, second[other_start:other_end])):
            if words:
                text = "".join(words)
                sides[side].append(text if kind == "equal" else tag("mark", text))
    return sides


def _tables(study: StudyResult) -> Iterator[Table]:
    arms = audited(study)
    if not any(audit.found for _, audit in arms):
        return
    shown = plain_table("Differences between identities that are larger than chance")
    for column in ("", *_HEAD):
        shown.add_column(column, justify="left" if column in ("", *_HEAD[:3]) else "right", overflow="fold")
    for arm, audit in arms:
        for each in audit.found:
            shown.add_row(*map(safe_text, [arm.label, *_cells(each)]))
    yield shown


def _sentences(study: StudyResult) -> Sequence[str]:
    return [f"{arm.label}: {said}" for arm, audit in audited(study) for said in audit.sentences[MAIN_FINDINGS:]]


add_section(Section("identities", "Identities", identities, tables=_tables, sentences=_sentences))
add_section(Section("what_changed", "What changed", what_changed))
