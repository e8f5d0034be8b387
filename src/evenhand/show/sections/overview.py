"""The first section: what was compared, the conclusions, the warnings and the main table."""

from __future__ import annotations

import re

from evenhand.core.format import count, duration, plural
from evenhand.core.types import Usage
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import NO_PRICE, arm_name, estimate_cell, money_cell, nothing, scrolling
from evenhand.show.view import View, finished, metric_hint, metric_title, total_usage
from evenhand.studies.results import ArmResult

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")


def overview(view: View) -> Html:
    """Return title, conclusions, warnings and one table row per arm."""
    study = view.study
    return tag(
        "section",
        tag("p", "Evenhand report", tag("span", study.benchmark, class_="benchmark"), class_="eyebrow"),
        tag("h1", study.title, id="overview-title"),
        _verdicts(view),
        _warnings(view),
        tag("p", _compared(view), class_="lead"),
        None if study.nothing_measured else _main_table(view) if view.arms else nothing("The study has no arms."),
        id="overview",
        aria_labelledby="overview-title",
    )


def _compared(view: View) -> list[Node]:
    arms = plural(len(view.whole_arms), "arm")
    sentence: list[Node] = [f"{arms} on {view.study.benchmark}, {_sizes(view)}. "]
    if len(view.arms) > 1 and view.baseline is not None:
        sentence.append(f"Every arm is compared with {view.arm_label(view.baseline)}, sample by sample. ")
    if not view.study.nothing_measured:
        headline = next((title for title, _ in _audit_head(view)), view.headline.title)
        sentence.append(f"The headline is {headline}. ")
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
    sentences = [_verdict(each) for each in view.study.verdicts]
    sentences += [tag("p", caveat, class_="caveat") for caveat in view.study.caveats]
    return tag("div", sentences, class_="verdicts", role="group", aria_label="Verdict")


def _verdict(text: str) -> Html:
    """Return the first sentence, which is the answer, above the details."""
    answer, *details = _SENTENCE_END.split(text, maxsplit=1)
    return tag("p", answer, [[" ", tag("small", each)] for each in details])


def _warnings(view: View) -> Html | None:
    if not view.study.warnings:
        return None
    items = [tag("li", warning) for warning in view.study.warnings]
    heading = tag("h2", "Warnings" if len(items) > 1 else "Warning")
    return tag("div", heading, tag("ul", items), class_="warnings", role="note")


def _main_table(view: View) -> Html:
    """Return the table of arms; it becomes cards on a narrow screen, hence the explicit roles."""
    heads = [
        tag("th", title, tag("small", hint), scope="col", role="columnheader")
        for title, hint in [*_audit_head(view), *((metric_title(m), metric_hint(m)) for m in view.main_metrics)]
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
    audited = _audit_head(view)
    for title, _ in audited:
        cells.append(tag("td", _audit_cell(arm), role="cell", data_label=title, class_="headline"))
    for i, metric in enumerate(view.main_metrics):
        cell = estimate_cell(arm.estimate(metric.name), view.digits[metric.name])
        css = "headline" if i == 0 and not audited else None
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


def _audit_head(view: View) -> list[tuple[str, str]]:
    """Return the column of the audits' main number, which comes before all metrics; none without an audit."""
    return [(arm.audit.headline[0], "") for arm in view.arms if arm.audit][:1]


def _audit_cell(arm: ArmResult) -> Html | None:
    if arm.audit is None:
        return None
    _, value, note = arm.audit.headline
    return tag("span", tag("span", value, class_="value"), tag("span", note, class_="note"), class_="estimate")


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
