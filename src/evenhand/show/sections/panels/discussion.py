"""The section on a panel's discussion: gaps round by round, and who influenced whom."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.format import DASH, count, limits, number, p_value
from evenhand.panels.findings import ALL, MEASURES, Amplification, Measure, PanelAudit, Shift
from evenhand.show.charts import Lane
from evenhand.show.charts.axis import axis_for
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import arm_name, legend, scrolling, section, table
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
from evenhand.show.view import View, group_label
from evenhand.stats import Interval


def discussion(view: View) -> Html | None:
    """Return amplification per round, then influence, for the arms with a discussion."""
    arms = [(arm, audit) for arm, audit in audited(view.study) if audit.rounds]
    if not arms:
        return None
    lead = "Change of the mean gap between identities after each round, compared with the judges' independent scores. "
    lead += "Above 0 the discussion moved identities further apart, below 0 closer together. "
    lead += "Only judges who scored in both rounds count."
    note = "Gaps also shrink if a discussion only makes scores less noisy, so do not read “amplified” or “damped” off "
    note += "the bars. The test checks whether each profession's gaps moved in the direction of all the others' gaps. "
    note += "Its null hypothesis is “the discussion moves no gap”; the result uses Holm's correction over the measures "
    note += "of a round."
    return section(
        "discussion",
        "Discussion",
        lead,
        legend(view),
        [_chart(view, arms, measure) for measure in MEASURES],
        _table(view, arms),
        tag("p", note, class_="footnote"),
        [_shifts(arm.label, audit) for arm, audit in arms],
        tag("h3", "Who influenced whom", class_="part-name"),
        [_influence(view, arm) for arm in arms],
        tag("p", _INFLUENCE, class_="footnote"),
    )


# --- amplification ---


def _chart(view: View, arms: Sequence[AuditedArm], measure: Measure) -> Html | None:
    changes = [
        (arm, each)
        for arm, audit in arms
        for each in audit.amplification
        if each.measure == measure and each.category == ALL
    ]
    if not any(each.change.estimate is not None for _, each in changes):
        return None
    scale, digits = scale_of(measure), digits_of(measure)
    axis = axis_for(drawn(scaled(each.change, scale) for _, each in changes), include_zero=True)
    rows: list[tuple[str, str, list[Lane]]] = []
    for number_of_round in sorted({each.round for _, each in changes}):
        here = [(arm, each) for arm, each in changes if each.round == number_of_round]
        lanes = [interval_lane(view, arm, scaled(each.change, scale), _text(each, scale, digits)) for arm, each in here]
        decided = [f"{each.direction}: {arm.label}" for arm, each in here if each.direction != "undecided"]
        rows.append((f"after round {number_of_round}", ", ".join(decided), lanes))
    unit = "per cent" if scale == PERCENT else "points"
    caption = tag("figcaption", tag("strong", MEASURES[measure]), f" – change of the mean gap, {unit}")
    return tag("figure", caption, plot(axis, rows, MEASURES[measure]), class_="gaps")


def _text(each: Amplification, scale: float, digits: int) -> str:
    return f"{difference_text(scaled(each.change, scale), digits)}, {each.direction}"


def _table(view: View, arms: Sequence[AuditedArm]) -> Html:
    head: list[Node] = ["Arm", "Measure", "Category", "Round", "Before", "After", "Change", "p", "Result"]
    rows: list[list[Node]] = [
        [arm_name(view, arm), *_cells(each)]
        for arm, audit in arms
        for each in audit.amplification
        if each.change.estimate is not None
    ]
    summary = tag("summary", "The numbers as a table, by category")
    return tag("details", summary, table(head, rows, "Amplification by round", "numbers words-3 audit"))


def _cells(each: Amplification) -> list[Node]:
    scale, digits = scale_of(each.measure), digits_of(each.measure)
    before, after = (None if value is None else value * scale for value in (each.before, each.after))
    return [
        MEASURES[each.measure] + (",\u00a0%" if scale == PERCENT else ""),
        "all" if each.category == ALL else group_label(each.category),
        str(each.round),
        number(before, digits),
        number(after, digits),
        difference_cell(scaled(each.change, scale), digits),
        p_value(each.p_value),
        tag("b", each.direction) if each.direction != "undecided" else each.direction,
    ]


def _shifts(label: str, audit: PanelAudit) -> Html | None:
    rows = [_shift(each) for each in audit.shifts if each.change.estimate is not None]
    if not rows:
        return None
    head: list[Node] = ["Pair", "Measure", "Round", "Before", "After", "Change"]
    content = table(head, rows, f"{label}: gaps by round", "numbers audit")
    return tag("details", tag("summary", f"{label}: every gap, round by round"), content)


def _shift(each: Shift) -> list[Node]:
    scale, digits = scale_of(each.measure), digits_of(each.measure)
    before, after = (None if value is None else value * scale for value in (each.before, each.after))
    return [
        pair_name(each),
        MEASURES[each.measure] + (",\u00a0%" if scale == PERCENT else ""),
        str(each.round),
        number(before, digits),
        number(after, digits),
        difference_cell(scaled(each.change, scale), digits),
    ]


# --- influence ---

_INFLUENCE = (
    "The share of its distance to the judge of the column that the judge of the row moved after hearing that judge: 0 "
    "is not at all, 1 is all the way. A drift common to all scores of a round is removed. A judge that only corrects "
    "its own outliers seems to move towards everybody, so compare columns rather than single values. A dash means that "
    "it never heard that judge."
)
_STEPS = 10


def _influence(view: View, audited_arm: AuditedArm) -> Html | None:
    arm, audit = audited_arm
    if not audit.influence:
        return None
    by_pair = {(each.listener, each.judge): each for each in audit.influence}
    head = tag("tr", tag("th", "listener", class_="corner"), [tag("th", name, scope="col") for name in audit.judges])
    rows: list[Node] = []
    for listener in audit.judges:
        cells: list[Node] = []
        for judge in audit.judges:
            pair = by_pair.get((listener, judge))
            cells.append(tag("td", DASH, class_="heat-0") if pair is None else _moved(pair.share, pair.n))
        rows.append(tag("tr", tag("th", listener, scope="row"), cells))
    body = tag("table", tag("thead", head), tag("tbody", rows), class_="heat influence")
    return tag("figure", tag("figcaption", arm_name(view, arm)), scrolling(body, f"{arm.label}: who influenced whom"))


def _moved(moved: Interval, n: int) -> Html:
    step = min(_STEPS, max(0, round(_STEPS * (moved.estimate or 0.0))))
    small = tag("small", limits(moved.low, moved.high, POINTS), title=f"n = {count(n)}")
    return tag("td", number(moved.estimate, POINTS), small, class_=f"heat-{step}")
