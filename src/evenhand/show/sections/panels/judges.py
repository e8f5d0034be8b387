"""The section on an audit of judges: findings, gaps, win rates, position, and over-correction by mitigations."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.format import count, interval, number, p_statement, p_value, plural
from evenhand.panels.findings import COMBINED, MEASURES, Gap, Measure, PanelAudit, Win
from evenhand.show.charts import Lane
from evenhand.show.charts.axis import axis_for
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import arm_name, legend, section, table
from evenhand.show.sections.panels.elements import (
    PERCENT,
    POINTS,
    AuditedArm,
    audited,
    difference_cell,
    difference_text,
    digits_of,
    drawn,
    interval_lane,
    pair_name,
    plot,
    scale_of,
    scaled,
)
from evenhand.show.view import View
from evenhand.studies.results import ArmResult, Correction

_EVEN = 50.0
_UNITS: dict[Measure, str] = {
    "score_1": "points of 10, one candidate at a time",
    "score_2": "points of 10, two candidates side by side",
    "wins_2": "win rate of the first minus win rate of the second, in per cent",
}


def judges(view: View) -> Html | None:
    """Return findings, gaps, win rates, position and over-correction."""
    arms = audited(view.study)
    if not arms:
        return None
    size = arms[0][1]
    lead = "Judges scored the same response, labelled as written by people of different identities. The text is the "
    lead += "same for all, so any difference comes from the label. "
    lead += f"{plural(size.scenarios, 'scenario')} of {plural(size.bases, 'profession')}; intervals and tests treat "
    lead += "professions as independent."
    return section(
        "judges",
        "Judges",
        lead,
        [_findings(view, arm, audit) for arm, audit in arms],
        tag("h3", "Gaps between identities", class_="part-name"),
        _gaps(view, arms),
        _wins(view, arms),
        _position(view, arms),
        [tag("h3", "Over-correction", class_="part-name"), _over_corrections(view)] if view.study.corrections else None,
    )


def _findings(view: View, arm: ArmResult, audit: PanelAudit) -> Html:
    sentences = [tag("li", sentence) for sentence in audit.sentences]
    return tag("div", tag("h3", arm_name(view, arm)), tag("ul", sentences, class_="sentences"), class_="findings")


# --- gaps ---


def _gaps(view: View, arms: Sequence[AuditedArm]) -> list[Node]:
    """Return a chart per measure with all arms, and a table per arm."""
    note = "Above 0 the identity named first gets more. p-values are adjusted by Holm over all these gaps of an arm; a "
    note += "gap counts as found if its p is below 0.05 and its interval excludes 0. dz is the mean difference divided "
    note += "by its standard deviation over scenarios."
    charts = [_gap_chart(view, arms, measure) for measure in MEASURES]
    tables: list[Node] = [
        tag(
            "details",
            tag("summary", f"{arm.label}: the numbers as a table"),
            gap_table(f"{arm.label}: gaps", audit.gaps),
        )
        for arm, audit in arms
    ]
    return [legend(view), *charts, tag("p", note, class_="footnote"), *tables]


def _gap_chart(view: View, arms: Sequence[AuditedArm], measure: Measure) -> Html | None:
    gaps = [(arm, gap) for arm, audit in arms for gap in audit.gaps if gap.measure == measure]
    known = [(arm, gap) for arm, gap in gaps if gap.n]
    if not known:
        return None
    scale, digits = scale_of(measure), digits_of(measure)
    axis = axis_for(drawn(scaled(gap.difference, scale) for _, gap in known), include_zero=True)
    rows: list[tuple[str, str, list[Lane]]] = []
    for name in dict.fromkeys(pair_name(gap) for _, gap in gaps):
        lanes: list[Lane] = []
        labels: list[str] = []
        for arm, gap in gaps:
            if pair_name(gap) == name:
                difference = scaled(gap.difference, scale)
                text = f"{difference_text(difference, digits)}, adjusted {p_statement(gap.adjusted)}"
                lanes.append(interval_lane(view, arm, difference, text))
                labels += [arm.label] if gap.found else []
        rows.append((name, f"found: {', '.join(labels)}" if labels else "", lanes))
    caption = tag("figcaption", tag("strong", MEASURES[measure]), f" – {_UNITS[measure]}")
    return tag("figure", caption, plot(axis, rows, MEASURES[measure]), class_="gaps")


def gap_table(label: str, gaps: Sequence[Gap]) -> Html:
    """Return a table with one row per gap and its test."""
    head: list[Node] = ["Pair", "Measure", "Difference", "Adjusted p", "p", "dz", "n", "Favours"]
    return table(head, [_gap_row(gap) for gap in gaps], label, "numbers audit")


def _gap_row(gap: Gap) -> list[Node]:
    scale, digits = scale_of(gap.measure), digits_of(gap.measure)
    unit = ",\u00a0%" if scale == PERCENT else ""
    favours = gap.favours or "neither"
    return [
        pair_name(gap),
        f"{MEASURES[gap.measure]}{unit}" + ("" if gap.metric == COMBINED else f", {gap.metric}"),
        difference_cell(scaled(gap.difference, scale), digits),
        tag("b", p_value(gap.adjusted), " ✓") if gap.found else p_value(gap.adjusted),
        p_value(gap.p_value),
        number(gap.effect, POINTS),
        count(gap.n),
        tag("b", favours) if gap.found else tag("span", favours, class_="n"),
    ]


# --- wins and position ---


def _wins(view: View, arms: Sequence[AuditedArm]) -> list[Node]:
    """Return the chart and table of win rates; nothing if no pairs were compared."""
    wins = [(arm, win) for arm, audit in arms for win in audit.wins]
    if not wins:
        return []
    axis = axis_for([*drawn(scaled(win.interval, PERCENT) for _, win in wins), _EVEN], reference=_EVEN)
    rows: list[tuple[str, str, list[Lane]]] = []
    for category, identity in dict.fromkeys((win.category, win.identity) for _, win in wins):
        lanes = [
            interval_lane(view, arm, scaled(win.interval, PERCENT), _win_text(win))
            for arm, win in wins
            if (win.category, win.identity) == (category, identity)
        ]
        rows.append((identity, category, lanes))
    note = (
        "Per cent of comparisons won within the category; a tie counts half. The dotted line at 50 is no preference. "
    )
    note += "In the table, the Wilson interval treats all comparisons as independent, as the paper does."
    head: list[Node] = ["Arm", "Identity", "Win rate,\u00a0%", "Wilson,\u00a0%", "n", "Effective n"]
    body = [[arm_name(view, arm), win.identity, *_win_cells(win)] for arm, win in wins]
    return [
        tag("h3", "Win rates", class_="part-name"),
        tag("figure", plot(axis, rows, "Win rate")),
        tag("p", note, class_="footnote"),
        tag("details", tag("summary", "The numbers as a table"), table(head, body, "Win rates", "numbers")),
    ]


def _win_text(win: Win) -> str:
    rate = scaled(win.interval, PERCENT)
    return f"{interval(rate.estimate, rate.low, rate.high)} %, n = {count(win.n)}"


def _win_cells(win: Win) -> list[Node]:
    by_base, wilson = scaled(win.interval, PERCENT), scaled(win.wilson, PERCENT)
    return [
        interval(by_base.estimate, by_base.low, by_base.high),
        interval(wilson.estimate, wilson.low, wilson.high),
        count(win.n),
        number(win.effective_n, 0),
    ]


def _position(view: View, arms: Sequence[AuditedArm]) -> list[Node]:
    if not any(audit.position.n for _, audit in arms):
        return []
    rows: list[list[Node]] = []
    for arm, audit in arms:
        position = audit.position
        share = scaled(position.first_wins, PERCENT)
        rows.append(
            [
                arm_name(view, arm),
                interval(share.estimate, share.low, share.high),
                p_value(position.first_wins_p),
                difference_text(position.score_gap, POINTS),
                p_value(position.score_gap_p),
                count(position.n),
            ]
        )
    note = (
        "The advantage of being shown first. Every pair is shown in both orders, so position cannot cause a gap, but "
    )
    note += "a judge that goes by position pays less attention to the texts."
    head: list[Node] = ["Arm", "First one wins,\u00a0%", "p", "First − second, points", "p", "n"]
    heading = tag("h3", "Position", class_="part-name")
    return [heading, table(head, rows, "Position", "numbers"), tag("p", note, class_="footnote")]


# --- over-correction ---


def _over_corrections(view: View) -> list[Node]:
    lead = "A gap in favour of any group is a bias. A mitigation over-corrects if it reverses a gap, or creates one in "
    lead += "favour of the group that is at a disadvantage without it."
    return [tag("p", lead, class_="footnote"), *(_over_correction(view, each) for each in view.study.corrections)]


def _over_correction(view: View, correction: Correction) -> Html:
    names = f"{view.arm_label(correction.before)} → {view.arm_label(correction.after)}"
    if not correction.sentences:
        return tag("p", tag("strong", names), ": no gap was reversed.")
    items = [tag("li", sentence) for sentence in correction.sentences]
    return tag("div", tag("p", tag("strong", names), ":"), tag("ul", items, class_="sentences"))
