"""The section on situations: outcomes by signal, tools and turns, and transcripts of pairs side by side."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.benchmarks.prompts.findings import GroupDifference
from evenhand.benchmarks.situations import Parting, Side, SituationsAudit
from evenhand.core.format import count, number
from evenhand.show.markup import Html, tag
from evenhand.show.page import details, section
from evenhand.show.sections import Section, add_section
from evenhand.show.sections.identities import differences_table
from evenhand.show.table import html_of
from evenhand.show.view import View, arm_name
from evenhand.studies.results import ArmResult

_WHO = {"user": "User", "model": "Model", "tool": "Result"}


def situations(view: View) -> Html | None:
    """Return, for every arm, the comparisons by signal, tool and turn, and the pairs that part."""
    arms = [(arm, arm.audit) for arm in view.study.arms if isinstance(arm.audit, SituationsAudit)]
    if not arms:
        return None
    lead = (
        "Two versions of one situation differ only in who the person is. The pairs shown are those whose outcomes are "
    )
    lead += (
        "furthest apart, one of each situation: they are the extremes and not typical. The turn in which a pair parts "
    )
    lead += "is marked."
    return section("situations", "Side by side", lead, [_block(view, *each) for each in arms])


def _block(view: View, arm: ArmResult, audit: SituationsAudit) -> Html:
    families = (("by signal and by area", audit.by_signal), ("in tools called", audit.tools), ("by turn", audit.turns))
    return tag(
        "div",
        tag("h3", arm_name(view, arm)),
        [_family(arm, *each) for each in families if each[1]],
        [_pair(each) for each in audit.partings],
        class_="findings",
    )


def _family(arm: ArmResult, what: str, differences: Sequence[GroupDifference]) -> Html:
    found = sum(each.found for each in differences)
    title = f"Differences {what}: {found} of {count(len(differences))} comparisons beyond chance"
    return details(title, html_of(differences_table(f"{arm.label}: {title}", differences, "Situations")))


def _pair(pair: Parting) -> Html:
    part = "they do not part" if pair.at is None else f"they part in turn {pair.at + 1}"
    title = f"{pair.situation} – {pair.attribute}, by {pair.signal}: {part}"
    return tag(
        "figure", tag("figcaption", title), [_side(each, pair.at) for each in (pair.one, pair.two)], class_="pair"
    )


def _side(side: Side, at: int | None) -> Html:
    turns = [
        tag(
            "p",
            tag("small", f"{place + 1} {_WHO.get(str(who), str(who))}"),
            tag("br"),
            tag("mark", str(text)) if place == at else str(text),
            class_="asked" if who == "user" else "answer",
        )
        for place, (who, text, _) in enumerate(side.turns)
    ]
    outcome = "no outcome" if side.outcome is None else f"outcome {number(100 * side.outcome)}"
    return tag("div", tag("strong", side.group), turns, tag("small", outcome))


add_section(Section("situations", "Side by side", situations))
