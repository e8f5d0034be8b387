"""Helpers of the sections on judges: audited arms, names of identities, intervals as cells and lanes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evenhand.core.format import DASH, finite, limits, signed
from evenhand.panels.findings import CONTROL, Gap, Measure, PanelAudit, Shift
from evenhand.show.charts import Lane, reach, strip, tick_labels
from evenhand.show.charts.axis import Axis
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import few_note
from evenhand.show.view import View
from evenhand.stats import Interval
from evenhand.studies.results import ArmResult, Estimate, StudyResult

AuditedArm = tuple[ArmResult, PanelAudit]

POINTS = 2
"""Decimals of scores; percentages have one."""
PERCENT = 100.0


def audited(study: StudyResult) -> list[AuditedArm]:
    """Return the arms that have an audit of judges, with the audit."""
    return [(arm, arm.audit) for arm in study.arms if isinstance(arm.audit, PanelAudit)]


def identity_name(identity: str) -> str:
    return "no label" if identity == CONTROL else identity


def pair_name(pair: Gap | Shift) -> str:
    return f"{identity_name(pair.x)} − {identity_name(pair.y)}"


def scale_of(measure: Measure) -> float:
    """Return the display scale: wins are fractions and are shown in per cent."""
    return PERCENT if measure == "wins_2" else 1.0


def digits_of(measure: Measure) -> int:
    return 1 if measure == "wins_2" else POINTS


def scaled(interval: Interval, scale: float) -> Interval:
    estimate, low, high = (
        None if each is None else each * scale for each in (interval.estimate, interval.low, interval.high)
    )
    return Interval(estimate, low, high, interval.n)


def as_estimate(interval: Interval, n: int) -> Estimate:
    """Return an interval as an estimate for table cells; n is the number to display."""
    return Estimate("", "", interval.estimate, interval.low, interval.high, n)


def difference_text(interval: Interval, digits: int) -> str:
    """`+0.21 [0.12, 0.30]`; a dash where undefined."""
    if finite(interval.estimate) is None:
        return DASH
    return f"{signed(interval.estimate, digits)} {limits(interval.low, interval.high, digits)}"


def difference_cell(interval: Interval, digits: int) -> Html:
    """Return a difference above its interval."""
    if finite(interval.estimate) is None:
        return tag("span", DASH, class_="value undefined")
    value = tag("span", signed(interval.estimate, digits), class_="value")
    return tag(
        "span", value, tag("span", limits(interval.low, interval.high, digits), class_="limits"), class_="estimate"
    )


def interval_lane(view: View, arm: ArmResult, interval: Interval, text: str) -> Lane:
    index, text = view.arm_index(arm.id), f"{arm.label}: {text}"
    return Lane(index, interval.estimate, interval.low, interval.high, interval.n, text)


def drawn(intervals: Iterable[Interval]) -> list[float | None]:
    """Return the values that an axis must cover."""
    return [v for i in intervals for v in reach(i.estimate, i.low, i.high, i.n)]


def plot(axis: Axis, rows: Sequence[tuple[str, str, Sequence[Lane]]], label: str) -> Html:
    """Draw dots and whiskers; a row is (name, note below it, lanes)."""
    body: list[Node] = []
    for name, small, lanes in rows:
        head = tag("span", tag("span", name), tag("small", small) if small else None, class_="row-name")
        text = f"{label}, {name}. " + "; ".join(lane.text for lane in lanes)
        body.append(tag("div", head, strip(axis, lanes, text), class_="row"))
    note = few_note(lane for _, _, lanes in rows for lane in lanes)
    return tag("div", _axis_row(axis), body, _axis_row(axis), note, class_="plot")


def _axis_row(axis: Axis) -> Html:
    return tag("div", tag("span", class_="row-name"), tick_labels(axis), class_="row axis")
