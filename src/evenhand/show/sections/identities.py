"""The sections on groups: prompts and situations that differ only in who somebody is, and rates of selection."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any, cast

import orjson

from evenhand.benchmarks.hiring import HiringAudit, Rate
from evenhand.benchmarks.prompts.findings import TITLES, AnsweredPair, GroupDifference, PromptsAudit, Shown, scale_of
from evenhand.benchmarks.situations import Parting, Side, SituationsAudit
from evenhand.core.format import count, number, p_value
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import details, section, sentences
from evenhand.show.sections import Section, add_section
from evenhand.show.table import Column, Content, Table, columns, html_of, interval_cell, measured
from evenhand.show.view import View, arm_block, audited, later_sentences
from evenhand.studies.results import ArmResult, StudyResult

_COLUMNS = ("Attribute", "Group", "Measure", "Group's mean", "Others", "Difference", "p, adjusted")
_SHOWN_VALUES = ("toxicity", "sentiment", "stance", "length")


def identities(view: View) -> Html | None:
    """Return the findings of every arm and all its comparisons."""
    arms = audited(view.study, PromptsAudit)
    if not arms:
        return None
    unit = arms[0][1].unit
    lead = f"Every {unit} was asked for all groups. A group's answers are compared with those to the other groups of "
    lead += (
        f"its attribute, {unit} by {unit}. p-values are corrected for all comparisons of an arm (maxT). Scores are in "
    )
    lead += "points of 100, all else is counted."
    return section("identities", "Differences between identities", lead, [_block(view, *each) for each in arms])


def _block(view: View, arm: ArmResult, audit: PromptsAudit) -> Html:
    unit = f"{audit.unit.capitalize()}s"
    every = differences_table(f"{arm.label}: comparisons", audit.differences, unit)
    found = differences_table(f"{arm.label}: differences found", audit.found, unit)
    folded = details(f"All {count(len(audit.differences))} comparisons", html_of(every))
    return arm_block(view, arm, sentences(audit.sentences), html_of(found) if audit.found else None, folded)


def differences_table(title: str, found: Sequence[GroupDifference], unit: str) -> Table:
    """Return one row per comparison; `unit` is what the comparisons are made within."""
    return Table(title, columns(*_COLUMNS, unit, words=3), [_cells(each) for each in found])


def _cells(each: GroupDifference) -> list[Content]:
    scale = scale_of(each.measure)
    between = each.difference.times(scale)
    return [
        each.attribute,
        each.group,
        TITLES.get(each.measure, each.measure),
        number(each.value * scale),
        number(each.others * scale),
        measured((each.value - each.others) * scale, between.low, between.high, sign=True, n=each.difference.n),
        p_value(each.adjusted),
        count(each.difference.n),
    ]


def what_changed(view: View) -> Html | None:
    """Return pairs of answers side by side, with the words marked in which they differ."""
    arms = [(arm, audit) for arm, audit in audited(view.study, PromptsAudit) if audit.pairs]
    if not arms:
        return None
    lead = "Answers to the same prompt for two groups: the clearest cases of the differences found, or, where none was "
    lead += "found, the answers that are least alike. They are the extremes and not typical. Words that only one side "
    lead += "has are marked."
    blocks = [arm_block(view, arm, [_pair(pair) for pair in audit.pairs]) for arm, audit in arms]
    return section("what_changed", "What changed", lead, blocks)


def _pair(pair: AnsweredPair) -> Html:
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
    rows: list[list[Content]] = [
        [arm.label, *_cells(each)] for arm, audit in audited(study, PromptsAudit) for each in audit.found
    ]
    if rows:
        unit = f"{audited(study, PromptsAudit)[0][1].unit.capitalize()}s"
        heads = [Column(""), *columns(*_COLUMNS, unit, words=3)]
        yield Table("Differences between identities that are larger than chance", heads, rows)


_later = partial(later_sentences, kind=PromptsAudit)
add_section(Section("identities", "Identities", identities, tables=_tables, sentences=_later))
add_section(Section("what_changed", "What changed", what_changed))


_WHO = {"user": "User", "model": "Model", "tool": "Result"}


def situations(view: View) -> Html | None:
    """Return, for every arm, the comparisons by signal, tool and turn, and the pairs that part."""
    arms = audited(view.study, SituationsAudit)
    if not arms:
        return None
    lead = (
        "Two versions of one situation differ only in who the person is. The pairs shown are those whose outcomes are "
    )
    lead += (
        "furthest apart, one of each situation: they are the extremes and not typical. The turn in which a pair parts "
    )
    lead += "is marked."
    return section("situations", "Side by side", lead, [_transcripts(view, *each) for each in arms])


def _transcripts(view: View, arm: ArmResult, audit: SituationsAudit) -> Html:
    families = (("by signal and by area", audit.by_signal), ("in tools called", audit.tools), ("by turn", audit.turns))
    tables = [_family(arm, *each) for each in families if each[1]]
    return arm_block(view, arm, tables, [_transcript_pair(each) for each in audit.partings])


def _family(arm: ArmResult, what: str, differences: Sequence[GroupDifference]) -> Html:
    found = sum(each.found for each in differences)
    title = f"Differences {what}: {found} of {count(len(differences))} comparisons beyond chance"
    return details(title, html_of(differences_table(f"{arm.label}: {title}", differences, "Situations")))


def _transcript_pair(pair: Parting) -> Html:
    part = "they do not part" if pair.at is None else f"they part in turn {pair.at + 1}"
    title = f"{pair.situation} – {pair.attribute}, by {pair.signal}: {part}"
    return tag(
        "figure", tag("figcaption", title), [_transcript(each, pair.at) for each in (pair.one, pair.two)], class_="pair"
    )


def _plain(text: str) -> str:
    """Return a record that a tool showed as lines of name and value; any other text as it is."""
    try:
        record: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    fields = cast("dict[str, Any]", record) if isinstance(record, dict) else {}
    return "\n".join(f"{name}: {value}" for name, value in fields.items()) or text


def _transcript(side: Side, at: int | None) -> Html:
    turns = [
        tag(
            "p",
            tag("small", f"{place + 1} {_WHO.get(str(who), str(who))}"),
            tag("br"),
            tag("mark", str(text)) if place == at else _plain(str(text)) if who == "tool" else str(text),
            class_="asked" if who == "user" else "answer",
        )
        for place, (who, text, _) in enumerate(side.turns)
    ]
    outcome = "no outcome" if side.outcome is None else f"outcome {number(100 * side.outcome)}"
    return tag("div", tag("strong", side.group), turns, tag("small", outcome))


add_section(Section("situations", "Side by side", situations))


_RATE_COLUMNS = columns("By", "Group", "Selected", "Shown", "Rate, %", "Impact ratio", "p, adjusted", words=2)


def selection(view: View) -> Html | None:
    """Return the rates of every arm."""
    arms = audited(view.study, HiringAudit)
    if not arms:
        return None
    lead = "Every group had every résumé equally often. The impact ratio is a group's selection rate divided by the "
    lead += "highest rate. Four fifths (0.8) is a rule of thumb of US agencies, no threshold of law. The p-value is of "
    lead += "“all groups are chosen equally often”, corrected by Holm."
    blocks = [arm_block(view, arm, sentences(audit.sentences), html_of(_rates(arm, audit))) for arm, audit in arms]
    return section("selection", "Selection", lead, blocks)


def _rates(arm: ArmResult, audit: HiringAudit) -> Table:
    return Table(f"Selection rates: {arm.label}", _RATE_COLUMNS, [_rate_cells(audit, each) for each in audit.rates])


def _rate_cells(audit: HiringAudit, each: Rate) -> list[Content]:
    return [
        each.by,
        each.group,
        count(each.selected),
        count(each.shown),
        interval_cell(each.rate, 100),
        number(each.ratio, 2),
        p_value(audit.p_values[each.by]),
    ]


def _rate_tables(study: StudyResult) -> Iterator[Table]:
    return (_rates(arm, audit) for arm, audit in audited(study, HiringAudit))


_later = partial(later_sentences, kind=HiringAudit)
add_section(Section("selection", "Selection", selection, tables=_rate_tables, sentences=_later))
