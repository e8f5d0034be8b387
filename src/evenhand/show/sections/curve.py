"""The section that shows what more calls buy, where a method ran with several values of a number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from evenhand.core.format import finite, number
from evenhand.show.charts.axis import axis_for
from evenhand.show.charts.scatter import Point, scatter
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import arm_name, estimate_cell, few_note, legend, section, table
from evenhand.show.view import View, finished, metric_title, total_usage
from evenhand.studies.results import ArmResult, Estimate, MetricInfo, estimate_text

_COVERAGE = "coverage"


def calls_curve(view: View) -> Html | None:
    """Plot the main metrics that should be high against calls; None unless a method ran with several values."""
    arms = sorted((arm for arm in view.whole_arms if finished(arm)), key=_calls)
    main = {view.study.headline, *view.study.guardrails} - {_COVERAGE}
    metrics = [each for each in view.metrics if each.better == "higher" and each.name in main]
    if not metrics or not _has_series(arms):
        return None
    head: list[Node] = ["Arm", "Requests per sample", *(metric_title(each) for each in metrics)]
    rows: list[list[Node]] = [
        [
            arm_name(view, arm),
            number(_calls(arm), 1),
            *(estimate_cell(arm.estimate(each.name), view.digits[each.name]) for each in metrics),
        ]
        for arm in arms
    ]
    lead = "Compare methods at equal requests per sample. Bars are confidence intervals."
    charts = [_chart(view, arms, each) for each in metrics]
    return section("calls", "What more calls buy", lead, legend(view), charts, table(head, rows, "Metrics by calls"))


def _has_series(arms: Iterable[ArmResult]) -> bool:
    """Whether arms of one method, on the same models and with the same seed, differ in one number alone."""
    series: defaultdict[tuple[object, ...], set[float]] = defaultdict(set)
    for arm in arms:
        options = dict(arm.key.options)
        for name, value in options.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                others = sorted((key, str(each)) for key, each in options.items() if key != name)
                models = sorted(arm.key.models.items())
                series[arm.key.method, arm.key.seed, name, tuple(others), tuple(models)].add(value)
    return any(len(values) > 1 for values in series.values())


def _calls(arm: ArmResult) -> float:
    usage = total_usage(arm)
    return (usage.calls + usage.cached_calls) / finished(arm)


def _chart(view: View, arms: Iterable[ArmResult], metric: MetricInfo) -> Html | None:
    points: list[Point] = []
    for arm in arms:
        y = arm.estimate(metric.name)
        if y is not None and finite(y.value) is not None:
            x = Estimate("", "", _calls(arm), None, None, y.n)
            text = f"{arm.label}: {number(x.value, 1)} requests; {estimate_text(y, view.digits[metric.name])}"
            points.append(Point(view.arm_index(arm.id), x, y, text))
    if not points:
        return None
    x_axis = axis_for([point.x.value for point in points], include_zero=True)
    y_axis = axis_for([v for p in points for v in (p.y.value, p.y.low, p.y.high)], reference=metric.chance)
    label = f"{metric.title} against requests per sample. " + " ".join(f"{point.text}." for point in points)
    return tag(
        "figure",
        tag("p", f"↑ {metric_title(metric)}", class_="axis-title"),
        scatter(x_axis, y_axis, points, None, label),
        tag("p", "Requests per sample →", class_="axis-title below"),
        few_note(points),
    )
