"""Leaderboards by benchmark, one model over time, and a comparison of chosen arms of the same benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.core.format import count, number, plural
from evenhand.show.chart import Axis, Lane, axis_for, covered, strip, tick_labels
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import footnote, nothing
from evenhand.show.table import Cell, Table, bare_html, cell_html, columns
from evenhand.show.view import estimate_cell, metric_hint, metric_title, money_cell
from evenhand.studies.results import Estimate, MetricInfo, digits_for, estimate_text
from evenhand.ui.index import Chosen, RunRow
from evenhand.ui.pages import (
    arm_mark,
    buttons,
    date,
    filters,
    hidden,
    link,
    note,
    pager,
    problem,
    run_link,
    select,
)

PAGE = 50
MOST = 12
"""Arms in one comparison."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An arm of a run with its estimates, as it was computed in the background."""

    row: RunRow
    number: int
    label: str
    method: str
    models: Mapping[str, str]
    options: Mapping[str, Any]
    seed: int
    estimates: Mapping[str, Estimate]
    cost: float | None
    calls: int
    samples: str
    """The digest of the sample ids; arms with the same one are ranked together."""
    scorers: tuple[str, ...]
    headline: MetricInfo

    @property
    def key(self) -> str:
        return f"{self.row.id}::{self.number}"

    @property
    def model(self) -> str:
        return self.models.get("base") or next(iter(self.models.values()))

    @property
    def what(self) -> tuple[Any, ...]:
        """What was measured; the newest of several is ranked."""
        options = sorted((name, str(value)) for name, value in self.options.items())
        return (self.method, tuple(options), tuple(sorted(self.models.items())), self.seed)

    @property
    def method_words(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.method}({options})" if options else self.method

    @property
    def value(self) -> Estimate | None:
        return self.estimates.get(self.headline.name)


def measured_from(row: RunRow, found: Mapping[str, Any]) -> list[Measured]:
    """Return the arms of a run from its computed results."""
    infos = {each["name"]: _info(each) for each in found["metrics"]}
    return [
        Measured(
            row=row,
            number=int(arm["id"]),
            label=arm["label"],
            method=arm["method"],
            models=arm["models"],
            options=arm["options"],
            seed=arm["seed"],
            estimates={each["metric"]: Estimate(**each) for each in arm["estimates"]},
            cost=arm["cost"],
            calls=arm["calls"],
            samples=found["samples"],
            scorers=tuple(found["scorers"]),
            headline=infos[found["headline"]],
        )
        for arm in found["arms"]
    ]


def _info(value: Mapping[str, Any]) -> MetricInfo:
    names = ("name", "title", "better", "share", "chance")
    fields: dict[str, Any] = {name: value[name] for name in names}
    return MetricInfo(**fields)


def pending_note(pending: int) -> Html | None:
    if not pending:
        return None
    return tag("p", f"{plural(pending, 'run')} still to be computed.", class_="footnote", data_pending=str(pending))


# --- leaderboards ---


def boards(benchmarks: Sequence[tuple[str, int, int]], pending: int) -> Html:
    """Return the list of benchmarks: (name, runs, models)."""
    rows = [
        [Cell(name, href=link("/board", benchmark=name)), plural(runs, "run"), plural(models, "model")]
        for name, runs, models in benchmarks
    ]
    table = Table("Leaderboards", columns("Benchmark", "Runs", "Models", words=3), rows)
    return tag(
        "section",
        tag("h1", "Leaderboards"),
        note("One for each benchmark; arms are ranked together if they had the same samples."),
        pending_note(pending),
        bare_html(table) if rows else nothing("Nothing was measured yet."),
        id="boards",
    )


def board_head(benchmark: str, sets: Sequence[Sequence[Measured]], chosen: str, pending: int) -> Html:
    """Return the beginning of a leaderboard's page, with a choice if runs had different samples."""
    options = [
        (
            each[0].samples,
            f"{plural(_size(each), 'sample')} · {plural(len({arm.row.id for arm in each}), 'run')}"
            f" · newest {max(arm.row.created for arm in each)[:10]}",
        )
        for each in sets
    ]
    choice = select("samples", "Samples", options, chosen, every="")
    form = filters("/board", hidden("benchmark", benchmark), choice, tag("button", "Show", type="submit"))
    return tag(
        "section",
        tag("p", tag("a", "Leaderboards", href="/boards"), class_="eyebrow"),
        tag("h1", benchmark),
        note(
            "The newest run of every model and method. Arms share a rank if no paired test decides between them "
            "(Holm-corrected over all pairs): the rank is one more than the number of arms that are decidedly better."
        ),
        pending_note(pending),
        form if len(sets) > 1 else None,
        nothing("Nothing was measured yet.") if not sets else None,
        id="board",
    )


def _size(arms: Sequence[Measured]) -> int:
    return max(arm.row.total // max(1, len(arm.row.arms)) for arm in arms)


def board_table(arms: Sequence[Measured], ranks: Mapping[str, tuple[int | None, Estimate | None]], cut: int) -> Html:
    """Return the ranked arms; `arms` come in the order of their ranks, `cut` more are not shown."""
    info = arms[0].headline
    values = [found for arm in arms if (found := ranks[arm.key][1]) is not None]
    digits = digits_for(info, values)
    axis = _axis(info, values)
    rows = [_ranked(arm, *ranks[arm.key], axis, digits) for arm in arms]
    heads: list[Node] = [
        tag("th", "Rank", scope="col"),
        tag("th", "Model and method", scope="col"),
        tag("th", [metric_title(info), tag("small", metric_hint(info)), tick_labels(axis)], scope="col", class_="wide"),
        tag("th", "Value", scope="col"),
        tag("th", "Cost", scope="col"),
        tag("th", "Calls per sample", scope="col"),
    ]
    keys = [arm.key for arm in arms][:12]
    return tag(
        "section",
        tag("table", tag("thead", tag("tr", heads)), tag("tbody", rows), class_="board"),
        footnote(f"{plural(cut, 'arm')} with worse values are not shown.") if cut else None,
        buttons(tag("a", "Compare these", href=link("/compare", arm=keys), class_="button")),
        id="ranks",
    )


def _ranked(arm: Measured, rank: int | None, value: Estimate | None, axis: Axis, digits: int) -> Html:
    text = f"{arm.model} {arm.method_words}: {estimate_text(value, digits)}"
    picture = strip(axis, [Lane.of(0, value, text)], text)
    name = [
        tag("a", arm.model, href=link("/history", model=arm.model, benchmark=arm.row.benchmark)),
        tag("small", arm.method_words, " · ", run_link(arm.row)),
    ]
    per_sample = number(arm.calls / max(1, sum(a.done for a in arm.row.arms if a.number == arm.number)))
    return tag(
        "tr",
        tag("td", "–" if rank is None else str(rank), data_label="Rank", class_="rank"),
        tag("th", name, scope="row"),
        tag("td", picture, class_="wide"),
        tag("td", cell_html(estimate_cell(value, digits)), data_label="Value"),
        tag("td", cell_html(money_cell(arm.cost)), data_label="Cost"),
        tag("td", per_sample, data_label="Calls per sample"),
    )


def _axis(info: MetricInfo, values: Sequence[Estimate]) -> Axis:
    return axis_for(covered(values), include_zero=info.better == "zero", reference=info.chance)


# --- one model over time ---


def history(
    models: Sequence[str],
    benchmarks: Sequence[str],
    model: str,
    benchmark: str,
    arms: Sequence[Measured],
    pending: int,
    page: int,
) -> Html:
    """Return a model's estimates on one benchmark by date, newest first."""
    form = filters(
        "/history",
        select("model", "Model", models, model, every="choose"),
        select("benchmark", "Benchmark", benchmarks, benchmark, every="choose"),
        tag("button", "Show", type="submit"),
    )
    shown: Node = nothing("Choose a model and a benchmark.")
    if model and benchmark:
        shown = _timeline(model, benchmark, arms, page) if arms else nothing("Nothing was measured.")
    return tag(
        "section",
        tag("h1", "One model over time"),
        note("The headline of its runs on one benchmark, by method."),
        form,
        pending_note(pending),
        shown,
        id="history",
    )


def _timeline(model: str, benchmark: str, arms: Sequence[Measured], page: int) -> list[Node]:
    info = arms[0].headline
    values = [arm.value for arm in arms if arm.value is not None]
    digits, axis = digits_for(info, values), _axis(info, values)
    methods = list(dict.fromkeys(arm.method_words for arm in arms))
    by_run: dict[str, list[Measured]] = {}
    for arm in arms:
        by_run.setdefault(arm.row.id, []).append(arm)
    runs_by_date = list(by_run.values())
    runs = runs_by_date[PAGE * (page - 1) : PAGE * page]
    legend = tag("ul", [tag("li", arm_mark(i, each)) for i, each in enumerate(methods)], class_="legend")
    ends = [run[0].key for run in (runs_by_date[-1], runs_by_date[0])]
    compare = tag("a", "Compare the first with the last", href=link("/compare", arm=ends), class_="button")
    unlike = footnote("The runs did not all have the same samples: compare only those that did.")
    return [
        tag("p", tag("strong", metric_title(info)), f" – {metric_hint(info)}", class_="axis-title"),
        legend,
        tag("div", tag("div", tag("span", class_="row-name"), tick_labels(axis), class_="row axis"), class_="plot"),
        tag("div", [_time_row(run, methods, axis, digits) for run in runs], class_="plot"),
        unlike if len({arm.samples for arm in arms}) > 1 else None,
        buttons(compare) if len(by_run) > 1 else None,
        pager("/history", {"model": model, "benchmark": benchmark}, page, len(by_run), PAGE),
    ]


def _time_row(run: Sequence[Measured], methods: Sequence[str], axis: Axis, digits: int) -> Html:
    lanes = [
        Lane.of(methods.index(arm.method_words), arm.value, f"{arm.method_words}: {estimate_text(arm.value, digits)}")
        for arm in run
    ]
    label = f"{run[0].row.id}, {run[0].row.created[:10]}. " + "; ".join(lane.text for lane in lanes)
    n = max((arm.value.n for arm in run if arm.value), default=0)
    about = tag("small", run_link(run[0].row), f" n = {count(n)}")
    name = tag("span", tag("span", date(run[0].row.created)), about, class_="row-name")
    return tag("div", name, strip(axis, lanes, label), class_="row")


def comparison_head(chosen: Sequence[Chosen], others: Sequence[Chosen], baseline: str, fault: str = "") -> Html:
    """Return the chosen arms, with what can be added and the baseline; the statistics come below."""
    keys = [each.key for each in chosen]
    items = [
        tag(
            "li",
            arm_mark(i, each.arm.label),
            " ",
            run_link(each.row),
            " ",
            tag(
                "a",
                "remove",
                href=link("/compare", arm=[key for key in keys if key != each.key], baseline=baseline),
                aria_label=f"Remove {each.label}",
            ),
        )
        for i, each in enumerate(chosen)
    ]
    options, more = ([(each.key, each.label) for each in arms] for arms in (chosen, others))
    form = filters(
        "/compare",
        [hidden("arm", key) for key in keys],
        select("arm", "Add an arm", more, "", every="–") if more else None,
        select("baseline", "Compare with", options, baseline, every="the first default"),
        tag("button", "Compare", type="submit", class_="primary"),
        label="Change the comparison",
    )
    answers = tag("a", "Answers side by side", href=link("/answers", arm=keys[:2]), class_="button")
    return tag(
        "section",
        tag("h1", "Comparison"),
        note(
            f"{plural(len(chosen), 'arm')}, paired on the samples that they share, as by ",
            tag("code", "evenhand compare"),
            ".",
        ),
        tag("ul", items, class_="plain chosen-arms"),
        problem(fault) if fault else None,
        form if chosen else None,
        buttons(answers) if len(chosen) > 1 and not fault else None,
        id="compare",
    )


def fault_of(chosen: Sequence[Chosen]) -> str:
    """Say why these arms cannot be compared; "" if they can."""
    if len(chosen) < 2:
        return "Choose at least two arms on the page Runs, or add one here."
    if len(chosen) > MOST:
        return f"Choose at most {MOST} arms; these are {len(chosen)}."
    if len({each.row.benchmark for each in chosen}) > 1:
        return "These arms are of different benchmarks, whose numbers cannot be compared."
    return ""
