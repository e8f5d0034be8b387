"""The sections that compare arms: the headline against a guardrail, and every metric by group."""

from __future__ import annotations

from evenhand.core.format import DASH, finite, plural
from evenhand.show.charts import Lane, reach, strip, tick_labels
from evenhand.show.charts.axis import Axis, axis_for
from evenhand.show.charts.scatter import Point, scatter
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import few_note, lane_for, legend, section, table
from evenhand.show.view import ALL, View, group_label, metric_hint, metric_title
from evenhand.studies.results import ArmResult, Estimate, MetricInfo, estimate_text

ACCURACY = "accuracy_disambig"
_FEWEST_POINTS = 2
"""With fewer arms the chart would repeat the main table."""
_UNDEFINED = Estimate("", "", None, None, None, 0)


def trade_off(view: View) -> Html | None:
    """Plot the headline against the guardrail that a trivial method would sacrifice.

    None if there are no two arms to look at together; None for audited arms, whose headline is the audit's.
    """
    if any(arm.audit for arm in view.arms):
        return None
    guard = _guardrail(view)
    if guard is None:
        measured = [arm for arm in view.arms if _value(arm, view.study.headline) is not None]
        if len(measured) < _FEWEST_POINTS:
            return None
        return section("trade-off", "The headline", _one_metric_lead(view), _one_metric(view))
    chart = _scatter(view, guard)
    if chart is None:
        return None
    title = "Bias against accuracy" if guard.name == ACCURACY else "The headline beside its guardrail"
    lead = "A method that always answers “unknown” shows no bias but is useless, so look at both metrics together. "
    generic = "A better headline is worth little if the guardrail gets worse, so look at both metrics together. "
    bars = "Bars are confidence intervals."
    return section("trade-off", title, (lead if guard.name == ACCURACY else generic) + bars, chart)


def _guardrail(view: View) -> MetricInfo | None:
    """Return the second axis: disambiguated accuracy, else the first measured guardrail that should be high."""
    names = [ACCURACY] if any(m.name == ACCURACY for m in view.metrics) else []
    guards = [view.info(name) for name in view.study.guardrails if name != view.study.headline]
    names += [m.name for m in guards if m.better == "higher"] + [m.name for m in guards]
    names = [name for name in names if name != view.study.headline]
    measured = [name for name in names if any(_value(arm, name) is not None for arm in view.arms)]
    return view.info((measured or names)[0]) if names else None


def _value(arm: ArmResult, metric: str) -> float | None:
    estimate = arm.estimate(metric)
    return None if estimate is None else estimate.value


def _one_metric_lead(view: View) -> str:
    hint = metric_hint(view.headline)
    return f"{metric_title(view.headline)}{f' ({hint})' if hint else ''}. Bars are confidence intervals."


def _one_metric(view: View) -> Html:
    lanes = [lane_for(view, arm, view.headline.name, ALL) for arm in view.arms]
    axis = _axis(view.headline, lanes)
    return tag("div", _row(axis, view.headline, ALL, lanes), _axis_row(axis), few_note(lanes), class_="plot")


def _scatter(view: View, guard: MetricInfo) -> Html | None:
    head = view.headline
    points: list[Point] = []
    missing: list[ArmResult] = []
    for i, arm in enumerate(view.arms):
        x, y = arm.estimate(head.name) or _UNDEFINED, arm.estimate(guard.name) or _UNDEFINED
        if finite(x.value) is None or finite(y.value) is None:
            missing.append(arm)
            continue
        text = f"{head.title}: {estimate_text(x, view.digits[head.name])}; "
        text += f"{guard.title}: {estimate_text(y, view.digits[guard.name])}"
        points.append(Point(i, x, y, f"{arm.label}. {text}"))
    if len(points) < _FEWEST_POINTS:
        return None
    x_axis = axis_for(_covered([p.x for p in points]), include_zero=head.better == "zero")
    y_axis = axis_for(_covered([p.y for p in points]), reference=guard.chance)
    note = "no measured bias" if guard.name == ACCURACY else "zero"
    label = f"{guard.title} against {head.title}. " + " ".join(f"{p.text}." for p in points)
    return tag(
        "figure",
        tag("div", legend(view), _guessing_key() if y_axis.reference is not None else None, class_="controls"),
        tag("p", f"↑ {metric_title(guard)}", _hint(guard), class_="axis-title"),
        scatter(x_axis, y_axis, points, note if head.better == "zero" else None, label),
        tag("p", f"{metric_title(head)} →", _hint(head), class_="axis-title below"),
        tag("figcaption", "Not drawn, because undefined: ", ", ".join(a.label for a in missing)) if missing else None,
        few_note(points),
    )


def _covered(estimates: list[Estimate]) -> list[float | None]:
    return [v for e in estimates for v in reach(e.value, e.low, e.high, e.n)]


def _guessing_key() -> Html:
    line = tag("svg", tag("line", x1=0, x2=26, y1=6, y2=6, class_="chance"), width=26, height=12, aria_hidden="true")
    return tag("span", line, "guessing", class_="line-key")


def _hint(info: MetricInfo) -> Html | None:
    hint = metric_hint(info)
    return tag("span", hint, class_="hint") if hint else None


def by_group(view: View) -> Html | None:
    """Return dots and whiskers per group, one panel per measured metric; the script switches between panels."""
    measured = [metric for metric in view.metrics if any(map(_is_defined, _lanes(view, metric).values()))]
    if not measured:
        return None
    options = [tag("option", metric_title(m), value=str(i)) for i, m in enumerate(measured)]
    picker = tag(
        "p",
        tag("label", "Metric", for_="metric-picker"),
        tag("select", options, id="metric-picker", autocomplete="off"),
        class_="picker needs-js",
    )
    panels = [_panel(view, i, metric) for i, metric in enumerate(measured)]
    lead = "Small groups have wide intervals. If the bars of two dots overlap widely, their difference may be chance."
    return section("groups", "By group", lead, tag("div", picker, legend(view), class_="controls"), panels)


def _lanes(view: View, metric: MetricInfo) -> dict[str, list[Lane]]:
    return {group: [lane_for(view, arm, metric.name, group) for arm in view.arms] for group in view.groups}


def _is_defined(lanes: list[Lane]) -> bool:
    return any(finite(lane.value) is not None for lane in lanes)


def _panel(view: View, index: int, metric: MetricInfo) -> Html:
    lanes = {group: each for group, each in _lanes(view, metric).items() if _is_defined(each)}
    axis = _axis(metric, [lane for each in lanes.values() for lane in each])
    hint = metric_hint(metric)
    rows = [_row(axis, metric, group, each) for group, each in lanes.items()]
    return tag(
        "figure",
        tag("figcaption", tag("strong", metric_title(metric)), f" – {hint}" if hint else None),
        tag("div", _axis_row(axis), rows, _axis_row(axis), class_="plot"),
        few_note(lane for each in lanes.values() for lane in each),
        tag("details", tag("summary", "The numbers as a table"), _numbers(view, metric)),
        class_="panel",
        data_panel=str(index),
        hidden=index > 0,
    )


def _row(axis: Axis, metric: MetricInfo, group: str, lanes: list[Lane]) -> Html:
    label = f"{group_label(group)}, {metric.title}. " + "; ".join(lane.text for lane in lanes)
    sizes = sorted({lane.n for lane in lanes})
    n = f"n = {sizes[0]:,}" + (f"–{sizes[-1]:,}" if len(sizes) > 1 else "")
    name = tag("span", tag("span", group_label(group)), tag("small", n), class_="row-name")
    return tag("div", name, strip(axis, lanes, label), class_="row all" if group == ALL else "row")


def _axis_row(axis: Axis) -> Html:
    return tag("div", tag("span", class_="row-name"), tick_labels(axis), class_="row axis")


def _axis(metric: MetricInfo, lanes: list[Lane]) -> Axis:
    values = [v for lane in lanes for v in reach(lane.value, lane.low, lane.high, lane.n)]
    return axis_for(values, include_zero=metric.better == "zero", reference=metric.chance)


def _numbers(view: View, metric: MetricInfo) -> Html:
    """Return one number per cell with ASCII minus signs, ready to paste into a spreadsheet."""
    head: list[Node] = ["Group", "Arm", "Value", "Low", "High", "n"]
    rows: list[list[Node]] = []
    for group in view.groups:
        for arm in view.arms:
            e = arm.estimate(metric.name, group) or _UNDEFINED
            values = [_pasteable(v, view.digits[metric.name]) for v in (e.value, e.low, e.high)]
            rows.append([group_label(group), arm.label, *values, str(e.n)])
    label = f"{metric.title} by group, {plural(len(rows), 'row')}"
    return table(head, rows, label, "numbers")


def _pasteable(value: float | None, digits: int) -> str:
    value = finite(value)
    return DASH if value is None else f"{value:.{digits}f}"
