"""The sections that compare arms: headline and guardrail, by group, before and after, by calls and by iteration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from evenhand.core.format import DASH, count, finite, interval, number, p_value, plural, share
from evenhand.show.chart import (
    Axis,
    Lane,
    Plot,
    PlotRow,
    Point,
    axis_for,
    covered,
    few_note,
    reach,
    scatter,
    strip,
    tick_labels,
)
from evenhand.show.markup import Html, tag
from evenhand.show.page import details, footnote, section
from evenhand.show.sections.overview import short_names
from evenhand.show.table import Cell, Column, Content, Table, bare_html, columns, html_of, measured, verdict
from evenhand.show.view import (
    ALL,
    View,
    arm_cell,
    estimate_cell,
    finished,
    group_label,
    lane_for,
    legend,
    look_of,
    metric_hint,
    metric_title,
    total_usage,
    view_of,
)
from evenhand.studies.results import (
    SYMBOLS,
    ArmResult,
    Effect,
    Estimate,
    IterationResult,
    MetricInfo,
    StudyResult,
    estimate_text,
    few_clusters,
    size,
)

ACCURACY = "accuracy_disambig"
_FEWEST_POINTS = 2
"""With fewer arms the chart would repeat the main table."""
_UNDEFINED = Estimate("", "", None, None, None, 0)
_MARGIN = 26
"""Space above and below the mark, so that the grid fills the height of a row."""
_COVERAGE = "coverage"


# --- the headline beside its guardrail ---


def trade_off(view: View) -> Html | None:
    """Plot the headline against the guardrail that a trivial method would sacrifice.

    None if there are no two arms to look at together; None for audited arms, whose headline is the audit's.
    """
    if any(arm.audit for arm in view.arms):
        return None
    guard = _guardrail(view)
    chart = None if guard is None else _scatter(view, guard)
    if guard is None or chart is None:
        return None
    title = "Bias against accuracy" if guard.name == ACCURACY else "The main metric beside its guardrail"
    lead = "A method that always answers “unknown” shows no bias but is useless, so look at both metrics together. "
    generic = "A better main metric is worth little if the guardrail gets worse, so look at both together. "
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


def _value(of: ArmResult | IterationResult, metric: str) -> float | None:
    estimate = of.estimate(metric)
    return None if estimate is None else estimate.value


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
    x_axis = axis_for(covered(p.x for p in points), include_zero=head.better == "zero")
    y_axis = axis_for(covered(p.y for p in points), reference=guard.chance)
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


def _guessing_key() -> Html:
    line = tag("svg", tag("line", x1=0, x2=26, y1=6, y2=6, class_="chance"), width=26, height=12, aria_hidden="true")
    return tag("span", line, "guessing", class_="line-key")


def _hint(info: MetricInfo) -> Html | None:
    hint = metric_hint(info)
    return tag("span", hint, class_="hint") if hint else None


# --- by group ---


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
    hint = metric_hint(metric)
    return tag(
        "figure",
        tag("figcaption", tag("strong", metric_title(metric)), f" – {hint}" if hint else None),
        _plot(metric, lanes).html(),
        details("The numbers as a table", html_of(_numbers(view, metric))),
        class_="panel",
        data_panel=str(index),
        hidden=index > 0,
    )


def _plot(metric: MetricInfo, lanes: Mapping[str, Sequence[Lane]]) -> Plot:
    rows = [
        PlotRow(group_label(group), _sizes(each), each, "row all" if group == ALL else "row")
        for group, each in lanes.items()
    ]
    return Plot(metric.title, rows, metric.better == "zero", metric.chance, axis_above=True)


def _sizes(lanes: Sequence[Lane]) -> str:
    sizes = sorted({lane.n for lane in lanes})
    return f"n = {count(sizes[0])}" + (f"–{count(sizes[-1])}" if len(sizes) > 1 else "")


def _numbers(view: View, metric: MetricInfo) -> Table:
    """Return one number per cell with ASCII minus signs, ready to paste into a spreadsheet."""
    rows: list[list[Content]] = []
    for group in view.groups:
        for arm in view.arms:
            e = arm.estimate(metric.name, group) or _UNDEFINED
            values = [_pasteable(v, view.digits[metric.name]) for v in (e.value, e.low, e.high)]
            rows.append([group_label(group), arm.label, *values, str(e.n)])
    label = f"{metric.title} by group, {plural(len(rows), 'row')}"
    return Table(label, columns("Group", "Arm", "Value", "Low", "High", "n", words=2), rows)


def _pasteable(value: float | None, digits: int) -> str:
    value = finite(value)
    return DASH if value is None else f"{value:.{digits}f}"


# --- before and after ---


def changes(view: View) -> Html | None:
    """Return one table with a chart column per metric; None if nothing was compared."""
    tables = [bare_html(table) for metric in view.metrics if (table := _metric_table(view, metric))]
    if not tables:
        return None
    lead = "Both arms are compared on the same samples, so every sample is its own control. "
    lead += "“Cannot tell” does not mean that nothing changed; “no change” means that the whole interval is within the "
    lead += "margin. “Probably” means that the interval excludes 0, but the corrected p-value is above 0.05. The last "
    lead += "column is the smallest difference that a study of this size would decide four times out of five."
    lanes = [_effect_lane(view, effect) for effect in view.study.effects if effect.group == ALL]
    return section(
        "changes", "Before and after", lead, tables, few_note(lanes), _how_tested(view), _within_groups(view)
    )


def _metric_table(view: View, metric: MetricInfo) -> Table | None:
    effects = view.effects(metric.name)
    if all(finite(effect.difference) is None for effect in effects):
        return None
    spans = [v for e in effects for v in reach(e.difference, e.low, e.high, e.n)]
    axis = axis_for(spans, include_zero=True, steps=4)
    names = [
        Column("Arm"),
        Column("Chart", head=tick_labels(axis), look="plotted"),
        *columns("Difference", "p, adjusted", "Result", "Detectable", words=4),
    ]
    rows = [_effect_row(view, metric, effect, axis) for effect in effects]
    return Table(
        metric_title(metric), names, rows, look="effects", cards=True,
        caption=metric_title(metric), hint=", ".join(filter(None, [metric_hint(metric), _margin_hint(effects)])),
    )  # fmt: skip


def _margin_hint(effects: Sequence[Effect]) -> str:
    margin = next((effect.margin for effect in effects if effect.margin is not None), None)
    return "" if margin is None else f"changes up to {margin:g} do not matter"


def _effect_row(view: View, metric: MetricInfo, effect: Effect, axis: Axis) -> list[Content]:
    lane = _effect_lane(view, effect)
    compared = f"compared with {view.arm_label(effect.before)}"
    return [
        Cell(view.arm_label(effect.after), mark=lane.arm, notes=(compared,)),
        Cell(html=strip(axis, [lane], lane.text, margin=_MARGIN)),
        _difference(view, effect, size(effect).split(", ")),
        p_value(effect.p_adjusted),
        _result(effect, metric),
        _detectable(effect, view.digits[metric.name]),
    ]


def _difference(view: View, effect: Effect, notes: Sequence[str] = ()) -> Cell:
    digits = view.digits.get(effect.metric, 1)
    return measured(effect.difference, effect.low, effect.high, digits, sign=True, n=effect.n, notes=notes)


def _effect_lane(view: View, effect: Effect) -> Lane:
    digits = view.digits.get(effect.metric, 1)
    text = f"{view.arm_label(effect.after)} minus {view.arm_label(effect.before)}: "
    text += f"{interval(effect.difference, effect.low, effect.high, digits)}, {size(effect)}"
    return Lane(view.arm_index(effect.after), effect.difference, effect.low, effect.high, effect.n, text)


def _result(effect: Effect, metric: MetricInfo) -> Cell:
    """Return the verdict with its symbol, and which way the value went."""
    moved = {"fell": "it fell", "rose": "it rose"}.get(effect.direction, "")
    if metric.better == "zero":
        moved = {"fell": "closer to 0", "rose": "farther from 0"}.get(effect.direction, "")
    good = {"better": True, "worse": False}.get(look_of(effect.verdict))
    return verdict(_result_text(effect), good, moved)


def _result_text(effect: Effect) -> str:
    return f"{SYMBOLS[effect.verdict]} {effect.verdict}"


def _detectable(effect: Effect, digits: int) -> str:
    value = finite(effect.detectable)
    return DASH if value is None else f"±{number(abs(value), digits)}"


def _how_tested(view: View) -> Html:
    tests = dict.fromkeys(e.test for e in view.study.effects if e.test)
    corrections = dict.fromkeys(e.correction for e in view.study.effects if e.correction)
    sentences = [
        f"Test: {', '.join(tests)}." if tests else "",
        f"Correction: {', '.join(corrections)}." if corrections else "",
    ]
    zero = any(m.better == "zero" for m in view.metrics)
    sentences.append("For metrics where 0 is best, distances from 0 are compared." if zero else "")
    return footnote(" ".join(filter(None, sentences)))


def _within_groups(view: View) -> Html | None:
    effects = [effect for effect in view.study.effects if effect.group != ALL]
    if not effects:
        return None
    names = columns("Metric", "Group", "Arm", "Difference", "n", "p", "p, adjusted", words=3)
    rows: list[list[Content]] = [
        [
            view.info(e.metric).title,
            group_label(e.group),
            view.arm_label(e.after),
            _difference(view, e),
            count(e.n) + few_clusters(e),
            p_value(e.p_value),
            p_value(e.p_adjusted),
            _result_text(e),
        ]
        for e in effects
    ]
    table = Table("Differences within groups", [*names, Column("Result")], rows)
    return details("Differences within groups, as a table", html_of(table))


def effect_table(study: StudyResult) -> Table:
    """Return one row per metric and comparison over all samples, for the terminal."""
    view, names = view_of(study), short_names(study)
    baselines = {effect.before for effect in study.effects}
    baseline = f" from {names[baselines.pop()]}" if len(baselines) == 1 else ""
    rows: list[list[Content]] = []
    for metric in view.metrics:
        effects = view.effects(metric.name, ALL)
        if effects:
            rows.append([metric_title(metric)])
        for effect in effects:
            arms = names[effect.after] + ("" if baseline else f" − {names[effect.before]}")
            tested = [count(effect.n) + few_clusters(effect), p_value(effect.p_adjusted)]
            least = number(effect.detectable, view.digits[effect.metric])
            rows.append(["  " + arms, _difference(view, effect), *tested, least, _result_text(effect)])
    heads = [*columns("", "Difference", "n", "p, adj.", "Detectable"), Column("Result")]
    return Table(f"Paired differences{baseline}", heads, rows)


# --- by calls ---


def calls_curve(view: View) -> Html | None:
    """Plot the main metrics that should be high against calls; None unless a method ran with several values."""
    arms = sorted((arm for arm in view.whole_arms if finished(arm)), key=_requests)
    main = {view.study.headline, *view.study.guardrails} - {_COVERAGE}
    metrics = [each for each in view.metrics if each.better == "higher" and each.name in main]
    if not metrics or not _has_series(arms):
        return None
    names = columns("Arm", "Requests per sample", *(metric_title(each) for each in metrics), words=1)
    rows = [
        [
            arm_cell(view, arm),
            number(_requests(arm), 1),
            *(estimate_cell(arm.estimate(each.name), view.digits[each.name]) for each in metrics),
        ]
        for arm in arms
    ]
    numbers = html_of(Table("Metrics by calls", names, rows, look="iterations"))
    lead = "Compare methods at equal requests per sample. Bars are confidence intervals."
    charts = [_curve(view, arms, each) for each in metrics]
    return section("calls", "What more calls buy", lead, legend(view), charts, numbers)


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


def _requests(arm: ArmResult) -> float:
    usage = total_usage(arm)
    return (usage.calls + usage.cached_calls) / finished(arm)


def _curve(view: View, arms: Iterable[ArmResult], metric: MetricInfo) -> Html | None:
    points: list[Point] = []
    for arm in arms:
        y = arm.estimate(metric.name)
        if y is not None and finite(y.value) is not None:
            x = Estimate("", "", _requests(arm), None, None, y.n)
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


# --- by iteration ---


def iterations(view: View) -> Html:
    """Return one row per arm and iteration."""
    lead = "Each row counts all samples of the arm after that iteration, including answers that were already final. "
    lead += "The last column is the share of samples that the method was still working on. A row “the end” is added "
    lead += "if the final answers differ from those of the last iteration."
    metrics = _followed(view)
    numbers = [Column(metric_title(m), numeric=True, hint=metric_hint(m)) for m in metrics]
    heads = [Column("Arm"), Column("After"), *numbers, Column("Worked on", numeric=True)]
    rows: list[list[Content]] = []
    for arm in view.whole_arms:
        steps = [step for step in view.study.by_iteration if step.arm == arm.id]
        for i, step in enumerate(steps):
            name = "first answer" if step.iteration == 0 else f"revision {step.iteration}"
            rows.append(
                [arm_cell(view, arm) if i == 0 else None, name, *_estimates(view, metrics, step), _reached(step)]
            )
        if steps and any(_value(arm, metric.name) != _value(steps[-1], metric.name) for metric in metrics):
            # Some methods answer again after their last iteration, or return to a better answer.
            rows.append([None, "the end", *_estimates(view, metrics, arm), None])
    table = Table("By iteration", heads, rows, look="costs iterations")
    return section("iterations", "By iteration", lead, html_of(table))


def _followed(view: View) -> list[MetricInfo]:
    """Return the headline, other followed metrics, and the guardrails."""
    headline, *guardrails = view.main_metrics
    steps = view.study.by_iteration
    others = [m for m in view.metrics if m not in view.main_metrics]
    return [headline, *(m for m in others if any(step.estimate(m.name) for step in steps)), *guardrails]


def _estimates(view: View, metrics: Sequence[MetricInfo], of: ArmResult | IterationResult) -> list[Cell]:
    return [estimate_cell(of.estimate(metric.name), view.digits[metric.name]) for metric in metrics]


def _reached(step: IterationResult) -> Cell:
    part = f"{count(step.reached)} of {count(step.of)}"
    return Cell(share(step.reached, step.of), "estimate", step.reached, notes=(part,))
