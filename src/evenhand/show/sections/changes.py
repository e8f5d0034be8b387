"""The section on paired differences from the baseline."""

from __future__ import annotations

from evenhand.core.format import DASH, count, finite, interval, limits, p_value, signed
from evenhand.show.charts import Lane, legend_mark, reach, strip, tick_labels
from evenhand.show.charts.axis import Axis, axis_for
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import few_note, section, size_lines, table
from evenhand.show.view import ALL, View, direction_is_good, group_label, metric_hint, metric_title
from evenhand.studies.results import Effect, MetricInfo, few_clusters, size

_ARROWS = {"fell": "↓", "rose": "↑"}
_MARGIN = 26
"""Space above and below the mark, so that the grid fills the height of a row."""


def changes(view: View) -> Html | None:
    """Return one table with a chart column per metric; None if nothing was compared."""
    tables = [block for metric in view.metrics if (block := _metric_table(view, metric))]
    if not tables:
        return None
    lead = "Both arms are compared on the same samples, so every sample is its own control. "
    lead += "“Undecided” means that this study cannot tell, not that nothing changed. The last column is the smallest "
    lead += "difference that a study of this size would decide four times out of five, after the correction."
    lanes = [_lane(view, effect) for effect in view.study.effects if effect.group == ALL]
    return section("changes", "Before and after", lead, tables, few_note(lanes), _how_tested(view), _by_group(view))


def _metric_table(view: View, metric: MetricInfo) -> Html | None:
    effects = view.effects(metric.name)
    if all(finite(effect.difference) is None for effect in effects):
        return None
    axis = axis_for(_drawn(effects), include_zero=True, steps=4)
    names = ("Difference", "p, adjusted", "Result", "Detectable")
    header = tag(
        "tr",
        tag("th", "Arm", scope="col", role="columnheader"),
        tag("th", tick_labels(axis), scope="col", role="columnheader", aria_label="Chart", class_="plotted"),
        [tag("th", name, scope="col", role="columnheader") for name in names],
        role="row",
    )
    rows = [_effect_row(view, metric, effect, axis) for effect in effects]
    hint = metric_hint(metric)
    return tag(
        "table",
        tag("caption", tag("strong", metric_title(metric)), f" – {hint}" if hint else None),
        tag("thead", header, role="rowgroup"),
        tag("tbody", rows, role="rowgroup"),
        class_="effects",
        role="table",
    )


def _effect_row(view: View, metric: MetricInfo, effect: Effect, axis: Axis) -> Html:
    digits = view.digits[metric.name]
    lane = _lane(view, effect)
    baseline = tag("small", f"compared with {view.arm_label(effect.before)}")
    arm = tag("span", legend_mark(lane.arm), tag("span", view.arm_label(effect.after)), class_="arm")
    difference: list[Node] = [tag("span", signed(effect.difference, digits), class_="value")]
    if finite(effect.difference) is not None:
        difference.append(tag("span", limits(effect.low, effect.high, digits), class_="limits"))
    difference += size_lines(effect)
    cells = {
        "Difference": tag("span", difference, class_="estimate"),
        "p, adjusted": p_value(effect.p_adjusted),
        "Result": _direction(effect, metric),
        "Detectable": _detectable(effect, digits),
    }
    return tag(
        "tr",
        tag("th", arm, baseline, scope="row", role="rowheader"),
        tag("td", strip(axis, [lane], lane.text, margin=_MARGIN), role="cell", class_="plotted"),
        [tag("td", cell, role="cell", data_label=label) for label, cell in cells.items()],
        role="row",
    )


def _lane(view: View, effect: Effect) -> Lane:
    digits = view.digits.get(effect.metric, 1)
    text = f"{view.arm_label(effect.after)} minus {view.arm_label(effect.before)}: "
    text += f"{interval(effect.difference, effect.low, effect.high, digits)}, {size(effect)}"
    return Lane(view.arm_index(effect.after), effect.difference, effect.low, effect.high, effect.n, text)


def _direction(effect: Effect, metric: MetricInfo) -> Html:
    """Return the direction with its arrow, and whether it is an improvement."""
    good = direction_is_good(effect.direction, metric)
    arrow = _ARROWS.get(effect.direction, "")
    quality = {True: "better", False: "worse", None: ""}[good]
    detail = {True: "closer to 0", False: "farther from 0", None: ""}[good] if metric.better == "zero" else ""
    return tag(
        "span",
        f"{arrow} {effect.direction}".strip(),
        tag("small", ", ".join(filter(None, [quality, detail]))),
        class_=f"reading {quality or 'open'}",
    )


def _detectable(effect: Effect, digits: int) -> str:
    value = finite(effect.detectable)
    return DASH if value is None else f"±{abs(value):,.{digits}f}"


def _how_tested(view: View) -> Html:
    tests = dict.fromkeys(e.test for e in view.study.effects if e.test)
    corrections = dict.fromkeys(e.correction for e in view.study.effects if e.correction)
    sentences = [
        f"Test: {', '.join(tests)}." if tests else "",
        f"Correction: {', '.join(corrections)}." if corrections else "",
    ]
    zero = any(m.better == "zero" for m in view.metrics)
    sentences.append("For metrics where 0 is best, distances from 0 are compared." if zero else "")
    return tag("p", " ".join(filter(None, sentences)), class_="footnote")


def _by_group(view: View) -> Html | None:
    """Return the differences within groups as a table."""
    effects = [e for e in view.study.effects if e.group != ALL]
    if not effects:
        return None
    head: list[Node] = ["Metric", "Group", "Arm", "Difference", "n", "p", "p, adjusted", "Result"]
    rows: list[list[Node]] = []
    for e in effects:
        digits = view.digits.get(e.metric, 1)
        values = [signed(e.difference, digits)]
        if finite(e.difference) is not None:
            values.append(limits(e.low, e.high, digits))
        tested = [count(e.n) + few_clusters(e), p_value(e.p_value), p_value(e.p_adjusted), e.direction]
        names = [view.info(e.metric).title, group_label(e.group), view.arm_label(e.after)]
        rows.append([*names, " ".join(values), *tested])
    summary = tag("summary", "Differences within groups, as a table")
    return tag("details", summary, table(head, rows, "Differences within groups", "numbers words-3"))


def _drawn(effects: list[Effect]) -> list[float | None]:
    return [v for e in effects for v in reach(e.difference, e.low, e.high, e.n)]
