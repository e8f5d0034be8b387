"""The first section: what was compared, the conclusions, the warnings and the main table."""

from __future__ import annotations

from evenhand.reports.format import count, duration, plural
from evenhand.reports.markup import Html, Node, tag
from evenhand.reports.sections.elements import NO_PRICE, arm_name, estimate_cell, money_cell, nothing, scrolling
from evenhand.reports.view import View, metric_hint, metric_title, planned, total_usage
from evenhand.studies.results import ArmResult
from evenhand.types import Usage

_LONG_SENTENCE = 240
"""Sentences longer than this get a smaller font."""


def overview(view: View) -> Html:
    """Return title, conclusions, warnings and one table row per arm."""
    study = view.study
    return tag(
        "section",
        tag("p", "Evenhand report", tag("span", study.benchmark, class_="benchmark"), class_="eyebrow"),
        tag("h1", study.title, id="overview-title"),
        tag("p", _compared(view), class_="lead"),
        _verdicts(view),
        _warnings(view),
        None if study.nothing_measured else _main_table(view) if view.arms else nothing("The study has no arms."),
        id="overview",
        aria_labelledby="overview-title",
    )


def _compared(view: View) -> list[Node]:
    arms = plural(len(view.whole_arms), "arm")
    sentence: list[Node] = [f"{arms} on {view.study.benchmark}, {plural(planned(view.study), 'sample')} each. "]
    if len(view.arms) > 1 and view.baseline is not None:
        sentence.append(f"Every arm is compared with {view.arm_label(view.baseline)}, sample by sample. ")
    if not view.study.nothing_measured:
        sentence.append(f"The headline is {view.headline.title}. ")
    if view.study.scorers:
        sentence.append(f"Scores are by {', '.join(view.study.scorers)}. ")
    sentence.append(_in_common(view))
    return sentence


def _in_common(view: View) -> str:
    """State models and seed once here if all arms share them."""
    models = ", ".join(f"{model} as {role}" for role, model in _shared_models(view).items())
    seed = f"seed {view.arms[0].seed}" if _one_seed(view) else ""
    common = ", ".join(filter(None, [models, seed]))
    return f"{'All arms' if len(view.arms) > 1 else 'The arm'} ran with {common}." if common else ""


def _shared_models(view: View) -> dict[str, str]:
    first = dict(view.arms[0].models) if view.arms else dict[str, str]()
    return {role: model for role, model in first.items() if all(a.models.get(role) == model for a in view.arms)}


def _one_seed(view: View) -> bool:
    return len({arm.seed for arm in view.arms}) == 1


def _verdicts(view: View) -> Html | None:
    if not view.study.verdicts:
        return None
    sentences = [tag("p", sentence) for sentence in view.study.verdicts]
    sentences += [tag("p", caveat, class_="caveat") for caveat in view.study.caveats]
    is_long = max(map(len, view.study.verdicts)) > _LONG_SENTENCE
    css = "verdicts long" if is_long else "verdicts"
    return tag("div", sentences, class_=css, role="group", aria_label="Verdict")


def _warnings(view: View) -> Html | None:
    if not view.study.warnings:
        return None
    items = [tag("li", warning) for warning in view.study.warnings]
    heading = tag("h2", "Warnings" if len(items) > 1 else "Warning")
    return tag("div", heading, tag("ul", items), class_="warnings", role="note")


def _main_table(view: View) -> Html:
    """Return the table of arms; it becomes cards on a narrow screen, hence the explicit roles."""
    heads = [
        tag("th", metric_title(m), tag("small", metric_hint(m)), scope="col", role="columnheader")
        for m in view.main_metrics
    ]
    costs = [tag("th", name, scope="col", role="columnheader") for name in ("Calls", "Tokens", "Money", "Time")]
    header = tag("tr", tag("th", "Arm", scope="col", role="columnheader"), heads, costs, role="row")
    body = [_row(view, arm) for arm in view.arms]
    table = tag(
        "table",
        tag("thead", header, role="rowgroup"),
        tag("tbody", body, role="rowgroup"),
        class_="main",
        role="table",
        aria_label="Results by arm",
    )
    unpriced = any(total_usage(arm).cost is None for arm in view.arms)
    notes = ["In brackets: confidence intervals. n: number of samples. A dash: undefined, not 0."]
    if unpriced:
        notes.append(f"A dash under Money: {NO_PRICE[0].lower()}{NO_PRICE[1:]}")
    return tag(
        "div", scrolling(table, "Results by arm"), tag("p", " ".join(notes), class_="footnote"), class_="main-table"
    )


def _row(view: View, arm: ArmResult) -> Html:
    usage = total_usage(arm)
    cells: list[Node] = [tag("th", arm_name(view, arm), _about(view, arm), scope="row", role="rowheader")]
    for i, metric in enumerate(view.main_metrics):
        cell = estimate_cell(arm.estimate(metric.name), view.digits[metric.name])
        css = "headline" if i == 0 else None
        cells.append(tag("td", cell, role="cell", data_label=metric_title(metric), class_=css))
    amounts: list[tuple[str, Node]] = [
        ("Calls", [count(usage.calls), _from_cache(usage)]),
        ("Tokens", count(usage.tokens)),
        ("Money", money_cell(usage.cost)),
        ("Time", duration(arm.seconds)),
    ]
    if arm.iteration is not None:
        # The usage of a single iteration is part of its arm's usage.
        amounts = [(name, "") for name, _ in amounts]
    cells.extend(tag("td", value, role="cell", data_label=name, class_="amount") for name, value in amounts)
    return tag("tr", cells, role="row")


def _from_cache(usage: Usage) -> Html | None:
    return tag("small", f"+{count(usage.cached_calls)} cached") if usage.cached_calls else None


def _about(view: View, arm: ArmResult) -> Html:
    """Return method and models, where they add to the label."""
    lines = [tag("span", "baseline")] if arm.id == view.baseline and len(view.arms) > 1 else []
    if arm.method != arm.label:
        lines.append(tag("span", arm.method))
    shared = _shared_models(view)
    lines.extend(tag("span", f"{role}: {model}") for role, model in arm.models.items() if role not in shared)
    if not _one_seed(view):
        lines.append(tag("span", f"seed {arm.seed}"))
    return tag("span", lines, class_="about")
