"""The first section: what was compared, the conclusions, the warnings and the main table, also for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evenhand.core.format import NO_PRICE, count, duration, finite, money, plural
from evenhand.show.chart import Plot, PlotRow
from evenhand.show.markup import Html, Node, join, tag
from evenhand.show.page import Part, details, footnote, nothing, opening, prose
from evenhand.show.sections import sections_of
from evenhand.show.table import Cell, Column, Content, Table, cell_html, html_of
from evenhand.show.view import (
    View,
    about_lead,
    arm_cell,
    estimate_cell,
    example_text,
    finished,
    lead_lanes,
    look_of,
    metric_hint,
    metric_title,
    requests_per_sample,
    total_usage,
    view_of,
)
from evenhand.studies.results import (
    ArmResult,
    Finding,
    MetricInfo,
    StudyResult,
)

_SIDE_BY_SIDE = 3
"""Up to this many arms, the terminal shows the interval beside the value; with more, below it."""
_LONGEST_NAME = 24
"""With longer labels, the terminal numbers arms, and the title lists them."""


def overview(view: View) -> Part:
    """Return title, conclusions, warnings and one table row per arm."""
    study = view.study
    return opening(
        study.title,
        study.benchmark,
        _verdicts(view),
        None if study.nothing_measured else _lead_chart(view),
        _warnings(view),
        tag("p", _compared(view), class_="lead"),
        None if study.nothing_measured else _main_table(view) if view.arms else nothing("The study has no arms."),
        footnote(["Notes. ", " ".join(study.notes)]) if study.notes else None,
        brand="Evenhand report",
    )


def _compared(view: View) -> list[Node]:
    arms = plural(len(view.whole_arms), "arm")
    sentence: list[Node] = [f"{arms} on {view.study.benchmark}, {_sizes(view)}; an arm is one model with one method. "]
    if len(view.arms) > 1 and view.baseline is not None:
        sentence.append(f"Every arm is compared with {view.arm_label(view.baseline)}, sample by sample. ")
    if not view.study.nothing_measured:
        headline = next((arm.audit.headline[0] for arm in view.arms if arm.audit), view.headline.title)
        sentence.append(f"The benchmark's main metric is {headline}. ")
    if view.study.scorers:
        sentence.append(f"Scores are by {', '.join(view.study.scorers)}. ")
    sentence.append(_in_common(view))
    return sentence


def _sizes(view: View) -> str:
    """State the planned samples per arm."""
    sizes = sorted({finished(arm) + arm.pending for arm in view.whole_arms}) or [0]
    if len(sizes) > 1:
        return f"{count(sizes[0])} to {plural(sizes[-1], 'sample')} each"
    return plural(sizes[0], "sample") + (" each" if len(view.whole_arms) > 1 else "")


def _in_common(view: View) -> str:
    """State method, models and seed once here if all arms share them."""
    models = ", ".join(f"{model} as {role}" for role, model in _shared_models(view).items())
    methods = {arm.method for arm in view.arms}
    method = f"the method {view.arms[0].method}" if len(methods) == 1 and methods != {"default"} else ""
    seed = f"seed {view.arms[0].seed}" if _one_seed(view) else ""
    common = ", ".join(filter(None, [method, models, seed]))
    return f"{'All arms' if len(view.arms) > 1 else 'The arm'} ran with {common}." if common else ""


def _shared_models(view: View) -> dict[str, str]:
    first = dict(view.arms[0].models) if view.arms else dict[str, str]()
    return {role: model for role, model in first.items() if all(a.models.get(role) == model for a in view.arms)}


def _one_seed(view: View) -> bool:
    return len({arm.seed for arm in view.arms}) == 1


def _verdicts(view: View) -> Html | None:
    """Return the findings, the first in large type, what its metric means, and the caveats."""
    study = view.study
    if not study.findings:
        return None
    shown = [finding_html(finding, first=place == 0) for place, finding in enumerate(study.findings)]
    return tag(
        "div",
        shown[0],
        meaning_html(study),
        shown[1:],
        [tag("p", prose(caveat), class_="caveat") for caveat in study.caveats],
        class_=f"verdicts {look_of(study.findings[0].verdict)}",
        role="group",
        aria_label="Verdict",
    )


def finding_html(finding: Finding, *, first: bool = False) -> Html:
    """Return a finding: symbol and word in its colour, the sentence, and the numbers in small print."""
    badge = [tag("span", finding.symbol, aria_hidden="true"), f" {finding.word}:"]
    return tag(
        "p",
        tag("strong", badge, class_=f"badge {look_of(finding.verdict)}"),
        f" {finding.text if finding.who else finding.text[:1].upper() + finding.text[1:]}.",
        [" ", tag("small", finding.detail)] if finding.detail else None,
        class_="finding first" if first else "finding",
    )


def meaning_html(study: StudyResult) -> Html | None:
    """Return what the first finding's metric means, with an example of the run."""
    about, example = about_lead(study), study.example
    if not about and example is None:
        return None
    shown: list[Node] = [about]
    if example is not None:
        text = example_text(example)
        shown += [" ", details("An example of this run, which may offend", text) if example.may_offend else text]
    return tag("div", shown, class_="meaning")


def _lead_chart(view: View) -> Html | None:
    """Return the chart of the metric that the first sentence is about, with a row for each arm."""
    metric, lanes = lead_lanes(view)
    if not any(finite(lane.value) is not None for _, lane in lanes) or any(arm.audit for arm in view.arms):
        return None
    rows = [PlotRow(arm.label, f"n = {count(lane.n)}", [lane]) for arm, lane in lanes]
    hint = metric_hint(metric)
    caption = tag("figcaption", tag("strong", metric_title(metric)), f" – {hint}" if hint else None)
    plot = Plot(metric.title, rows, metric.better == "zero", metric.chance, axis_above=False)
    return tag("figure", caption, plot.html(), class_="lead-chart")


def _warnings(view: View) -> Html | None:
    if not view.study.warnings:
        return None
    items = [tag("li", prose(warning)) for warning in view.study.warnings]
    heading = tag("h2", "Warnings" if len(items) > 1 else "Warning")
    return tag("div", heading, tag("ul", items), class_="warnings", role="note")


# --- the main table ---


def _main_table(view: View) -> Html:
    note = footnote("In brackets: confidence intervals. n: number of samples. A dash: undefined, not 0.")
    return tag("div", html_of(arms_table(view)), note, class_="main-table")


def arms_table(view: View) -> Table:
    """Return one row per arm: headline, guardrails and cost. An audit's main number comes before all metrics."""
    audited = [arm.audit.headline[0] for arm in view.arms if arm.audit][:1]
    names = [*(Column(title) for title in audited), *_metric_columns(view.main_metrics)]
    names.append(Column("Cost", look="amount"))
    rows = [
        [
            _named(view, arm),
            *(_audit_cell(arm) for _ in audited),
            *(
                estimate_cell(arm.estimate(metric.name), view.digits[metric.name], "" if i or audited else "headline")
                for i, metric in enumerate(view.main_metrics)
            ),
            _cost(arm),
        ]
        for arm in view.arms
    ]
    return Table("Results by arm", [Column("Arm"), *names], rows, look="main", cards=True)


def arm_table(study: StudyResult) -> Table:
    """Return one column per arm for the terminal: the same, the metrics of the benchmark's sections, and all costs."""
    view, names = view_of(study), short_names(study)
    legend = [f"{names[arm.id]} {arm.label}" for arm in study.arms if names[arm.id] != arm.label]
    named = [name for section in sections_of(study) for name in section.metrics]
    more = [metric for metric in view.metrics if metric.name in named]
    metrics = [*view.main_metrics, *more]
    rows: list[list[Content]] = [
        [
            names[arm.id],
            *(estimate_cell(arm.estimate(metric.name), view.digits[metric.name]) for metric in metrics),
            *(amount(arm) if arm.iteration is None else "" for amount in _AMOUNTS.values()),
        ]
        for arm in study.arms
    ]
    heads = [Column(""), *_metric_columns(metrics), *(Column(name) for name in _AMOUNTS)]
    title = "\n".join([study.benchmark, *legend]) if legend else study.title
    ends = {len(view.main_metrics) - 1, len(metrics) - 1}
    return Table(title, heads, rows, narrow=len(study.arms) > _SIDE_BY_SIDE).transposed(ends)


def short_names(study: StudyResult) -> dict[str, str]:
    """Return a name for each arm that fits a column: its label, or a number if there are long labels."""
    if len(study.arms) < 2 or all(len(arm.label) <= _LONGEST_NAME for arm in study.arms):
        return {arm.id: arm.label for arm in study.arms}
    return {arm.id: f"#{number}" for number, arm in enumerate(study.arms, 1)}


def _metric_columns(metrics: Sequence[MetricInfo]) -> list[Column]:
    return [Column(metric_title(metric), hint=metric_hint(metric)) for metric in metrics]


def _cost(arm: ArmResult) -> Cell:
    """All costs in one cell, since a column for each does not fit beside the metrics."""
    if arm.iteration is not None:
        return Cell()
    usage = total_usage(arm)
    cached = [f"+{count(usage.cached_calls)} cached"] if usage.cached_calls else []
    notes = [*cached, plural(usage.tokens, "token"), money(usage.cost, NO_PRICE), duration(arm.seconds)]
    return Cell(plural(usage.calls, "call"), value=usage.calls, notes=notes, look="amount")


_AMOUNTS: Mapping[str, Callable[[ArmResult], str]] = {
    "Calls": lambda arm: count(total_usage(arm).calls),
    "Requests per sample": lambda arm: requests_per_sample(total_usage(arm), finished(arm)),
    "Tokens": lambda arm: count(total_usage(arm).tokens),
    "Money": lambda arm: money(total_usage(arm).cost),
    "Time": lambda arm: duration(arm.seconds),
}


def _audit_cell(arm: ArmResult) -> Cell:
    if arm.audit is None:
        return Cell()
    _, value, note = arm.audit.headline
    first, opening_bracket, rest = value.partition("[")
    between = tag("span", opening_bracket, rest, class_="limits") if rest else None
    shown = [tag("span", first.strip(), class_="value"), between, tag("span", note, class_="note")]
    return Cell(value, notes=(note,), look="headline", html=tag("span", shown, class_="estimate"))


def _named(view: View, arm: ArmResult) -> Cell:
    """Return the arm with method and models, where they add to the label."""
    lines = ["baseline"] if arm.id == view.baseline and len(view.arms) > 1 else []
    if arm.method not in arm.label and len({each.method for each in view.arms}) > 1:
        lines.append(arm.method)
    shared = _shared_models(view)
    lines += [f"{role}: {model}" for role, model in arm.models.items() if role not in shared and model not in arm.label]
    if not _one_seed(view):
        lines.append(f"seed {arm.seed}")
    name = arm_cell(view, arm)
    about = tag("span", [tag("span", line) for line in lines], class_="about")
    return Cell(arm.label, notes=lines, html=join(cell_html(name), about))
