"""The pack as one HTML page, in the order in which an auditor reads: scope, data, methods, results, limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from evenhand.core.format import DASH, count, duration, interval, money, number, p_value, plural, signed
from evenhand.core.types import Usage
from evenhand.evidence.facts import RunFacts
from evenhand.evidence.mappings import MappedItem
from evenhand.evidence.rates import FOUR_FIFTHS, RateRow, RateTable
from evenhand.show.html import page
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import section, table
from evenhand.show.view import view_of
from evenhand.studies.results import ArmResult, Estimate, StudyResult

if TYPE_CHECKING:
    from evenhand.evidence import Pack

_STYLES = ("page.css", "tables.css", "paper.css")
_SCRIPTS = ("page.js",)


def render(pack: Pack) -> str:
    """Return the page as HTML text."""
    parts: list[tuple[str, str, Html | None]] = [
        ("overview", "Overview", _overview(pack)),
        ("scope", "Scope", _scope(pack)),
        ("data", "Data sheets", _data(pack)),
        ("methods", "Methods", _methods(pack)),
        ("results", "Results", _results(pack)),
        ("groups", "By group", _groups(pack)),
        ("rates", "Selection rates", _rates(pack)),
        ("limits", "Limits", _limits(pack)),
        ("standards", "Laws and standards", _standards(pack)),
        ("repeat", "How to repeat it", _repeat(pack)),
    ]
    shown = [(name, title, html) for name, title, html in parts if html is not None]
    content = tag("main", [html for _, _, html in shown])
    return page(pack.title, [(name, title) for name, title, _ in shown], content, _STYLES, _SCRIPTS)


def _overview(pack: Pack) -> Html:
    findings = [sentence for run in pack.runs for sentence in run.study.verdicts]
    return tag(
        "section",
        tag("p", "Evenhand", tag("span", "evidence pack", class_="benchmark"), class_="eyebrow"),
        tag("h1", pack.title, id="overview-title"),
        tag("p", f"Made on {pack.made[:10]} from {plural(len(pack.runs), 'stored run')}.", class_="lead"),
        tag("ul", [tag("li", each) for each in findings], class_="verdicts"),
        tag("p", "No statement of conformity with any law or standard.", class_="footnote"),
        id="overview",
        aria_labelledby="overview-title",
    )


def _scope(pack: Pack) -> Html:
    rows: list[list[Node]] = []
    for run in pack.runs:
        for arm in run.arms:
            done = sum(arm.statuses.values())
            left = f" ({count(arm.pending)} not run)" if arm.pending else ""
            rows.append(
                [
                    run.name,
                    run.study.benchmark,
                    ", ".join(dict.fromkeys(arm.models.values())),
                    arm.method,
                    str(arm.seed),
                    f"{count(done)}{left}",
                    str(run.provenance.get("created") or DASH)[:10],
                    _cost(arm),
                ]
            )
    head = ["Run", "Benchmark", "Models", "Method", "Seed", "Samples", "Begun", "Cost"]
    lead = "What was measured, with which models and methods."
    return section("scope", "Scope", lead, table(head, rows, "Scope"), _models(pack))


def _cost(arm: ArmResult) -> str:
    used = sum(arm.usage.values(), Usage())
    return f"{count(used.calls)} calls, {count(used.tokens)} tokens, {money(used.cost)}, {duration(arm.seconds)}"


def _models(pack: Pack) -> Html:
    found: dict[str, dict[str, Any]] = {}
    for run in pack.runs:
        for model in run.provenance.get("models", ()):
            found.setdefault(str(model.get("spec")), dict(model))
    rows = [
        [spec, _listed({key: value for key, value in about.items() if key != "spec"})] for spec, about in found.items()
    ]
    return tag("div", tag("h3", "Models"), table(["Model", "What identifies it"], rows, "Models"))


def _listed(values: dict[str, Any]) -> Html:
    lines = [
        tag("li", f"{key}: ", tag("code", _short(value)))
        for key, value in values.items()
        if value not in (None, {}, [], "")
    ]
    return tag("ul", lines, class_="plain")


def _short(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str).decode()


def _data(pack: Pack) -> Html:
    sheets = {(run.data.name, tuple(run.data.sha256.values())): run.data for run in pack.runs}
    return section(
        "data",
        "Data sheets",
        "The data of the tests. Checksums are SHA-256 of the files as they were read.",
        [
            tag(
                "div",
                tag("h3", f"{sheet.name} (version {sheet.version})"),
                table(
                    ["", ""],
                    [
                        ["What it is", sheet.about],
                        ["Set", sheet.title],
                        ["Source", sheet.source],
                        ["Licence", sheet.licence],
                        *([["Authors and terms", sheet.notice]] if sheet.notice else []),
                        ["Samples used", count(sheet.samples)],
                        ["By group", ", ".join(f"{name} {count(n)}" for name, n in sheet.groups.items())],
                        ["Files", _listed(dict(sheet.sha256))],
                    ],
                    sheet.name,
                ),
            )
            for sheet in sheets.values()
        ],
    )


def _methods(pack: Pack) -> Html:
    prompts = {name: digest for run in pack.runs for name, digest in run.prompts.items()}
    methods = {name: about for run in pack.runs for name, about in run.methods.items()}
    metrics = [
        [run.study.benchmark, view.info(name).title, _better(view.info(name).better)]
        for run in pack.runs
        for view in [view_of(run.study)]
        for name in run.main_metrics
    ]
    metrics = [list(each) for each in dict.fromkeys(map(tuple, metrics))]
    return section(
        "methods",
        "Methods",
        "Every sample is answered through a method; the benchmark grades answers without knowing which.",
        table(["Method", "What it does"], list(map(list, methods.items())), "Methods"),
        tag("h3", "Metrics"),
        table(["Benchmark", "Metric", "Good"], metrics, "Metrics"),
        tag(
            "p",
            "Intervals are 95 % intervals. Samples of one template, scenario or writer are one cluster: shares have "
            "Wilson intervals at the effective sample size, other values the cluster jackknife with Student's t. "
            "Differences are paired by sample, with permutation or exact McNemar tests, and p-values are corrected by "
            "Holm's method within a run. Refusals and unreadable answers count in no score; see coverage.",
        ),
        tag("h3", "Prompts"),
        tag("p", "The hash is that of the prompt's text; the texts are in the stored runs and in the package."),
        table(["Prompt", "Hash"], [[name, tag("code", digest)] for name, digest in sorted(prompts.items())], "Prompts")
        if prompts
        else tag("p", "No prompt was used: given texts were scored as they are."),
    )


def _better(better: str | None) -> str:
    return {"higher": "higher", "lower": "lower", "zero": "close to 0"}.get(better or "", "no direction")


def _results(pack: Pack) -> Html:
    return section(
        "results",
        "Results",
        "Value, 95 % interval and number of samples; the first metric of each run is its headline.",
        [_run_results(run) for run in pack.runs],
    )


def _run_results(run: RunFacts) -> Html:
    view = view_of(run.study)
    rows: list[list[Node]] = [
        [view.info(name).title, *(_cell(arm.estimate(name), view.digits.get(name, 1)) for arm in run.arms)]
        for name in run.main_metrics
    ]
    return tag(
        "div",
        tag("h3", run.study.title),
        table(["Metric", *(arm.label for arm in run.arms)], rows, run.name),
        _effects(run.study),
        tag("ul", [tag("li", each) for each in (*run.study.verdicts, *run.study.caveats)]),
    )


def _cell(estimate: Estimate | None, digits: int) -> str:
    if estimate is None or estimate.value is None:
        return f"{DASH} (n = {estimate.n if estimate else 0})"
    mark = ", few clusters" if estimate.few_clusters else ""
    return f"{interval(estimate.value, estimate.low, estimate.high, digits)}, n = {count(estimate.n)}{mark}"


def _effects(study: StudyResult) -> Html | None:
    labels = {arm.id: arm.label for arm in study.arms}
    rows: list[list[Node]] = [
        [
            f"{labels.get(each.before, each.before)} → {labels.get(each.after, each.after)}",
            each.metric,
            f"{signed(each.difference)} [{number(each.low)}, {number(each.high)}]",
            p_value(each.p_adjusted),
            each.test,
        ]
        for each in study.effects
        if each.group == "all" and each.difference is not None
    ]
    head = ["Comparison", "Metric", "Difference", "p (corrected)", "Test"]
    return table(head, rows, "Comparisons") if rows else None


def _groups(pack: Pack) -> Html | None:
    blocks: list[Html] = []
    for run in pack.runs:
        view = view_of(run.study)
        name = run.group_metric
        if name is None:
            continue
        rows: list[list[Node]] = [
            [group, *(_cell(arm.estimate(name, group), view.digits.get(name, 1)) for arm in run.arms)]
            for group in run.study.groups
        ]
        title = f"{run.study.benchmark}: {view.info(name).title}"
        blocks.append(tag("div", tag("h3", title), table(["Group", *(arm.label for arm in run.arms)], rows, title)))
    lead = "The headline for each group of samples, or the next metric that is defined for groups."
    return section("groups", "By group", lead, blocks) if blocks else None


def _rates(pack: Pack) -> Html | None:
    blocks = [
        tag("div", tag("h3", f"{run.study.benchmark}, {each.arm}"), [_rate_table(found) for found in each.tables])
        for run in pack.runs
        for each in run.rates
    ]
    if not blocks:
        return None
    return section(
        "rates",
        "Selection rates and impact ratios",
        "In the form of New York City's Local Law 144: rates by sex, race and both, each also divided by the highest.",
        tag(
            "p",
            "The rows are decisions of the model about test texts, not about applicants. An impact ratio below "
            f"{FOUR_FIFTHS} is what the four-fifths rule of thumb of US agencies reads as a sign of adverse impact; it "
            "is a reading, and Local Law 144 sets no threshold. * marks categories with less than 2 % of the people, "
            "which the rules allow to leave out of impact ratios with a justification. Categories that are not in the "
            "test, such as Native American or people of two or more races, are not covered.",
        ),
        blocks,
    )


def _rate_table(found: RateTable) -> Html:
    what = "Selected" if found.kind == "selection" else "Above the median"
    rate = "Selection rate" if found.kind == "selection" else "Scoring rate"
    title = " × ".join(found.by)
    head = [title.capitalize(), "People", what, rate, "Impact ratio"]
    unknown = f"Unknown category, in no row: {count(found.unknown)}."
    return tag("div", table(head, map(_rate_row, found.rows), title), tag("p", unknown, class_="footnote"))


def _rate_row(row: RateRow) -> list[Node]:
    return [
        f"{row.category}{'*' if row.is_small else ''}",
        count(row.people),
        count(row.selected),
        interval(row.rate, row.low, row.high, 2),
        number(row.ratio, 2) if row.ratio_low is None else interval(row.ratio, row.ratio_low, row.ratio_high, 2),
    ]


def _limits(pack: Pack) -> Html:
    return section("limits", "Limits", "", tag("ul", [tag("li", each) for each in pack.limits]))


def _standards(pack: Pack) -> Html:
    blocks = [
        tag(
            "div",
            tag("h3", each.name),
            tag("p", each.source, ". ", _looked_up(each.items), class_="footnote"),
            table(["Item", "Asks for", "In this pack"], _items(each.items), each.name),
        )
        for each in pack.standards
    ]
    lead = (
        "Where this pack can serve as evidence, and where it cannot. The items are put in our own words; nothing here "
        "states conformity, and no single measurement could."
    )
    return section("standards", "Laws and standards", lead, blocks)


def _looked_up(items: Sequence[MappedItem]) -> list[Html | str]:
    """Say in which public texts the items were looked up, and when."""
    parts: list[Html | str] = ["Numbers and subjects looked up in"]
    for text, read in dict.fromkeys((item.text, item.read) for item in items):
        parts += [" ", tag("a", urlsplit(text).hostname or text, href=text), f" ({read})"]
    return [*parts, "."]


def _items(items: Sequence[Any]) -> list[list[Node]]:
    return [[each.item, each.asks, each.evidence] for each in items]


def _repeat(pack: Pack) -> Html:
    commands = [f"evenhand run --config plans/{run.name}.yaml --out runs/{run.name}" for run in pack.runs]
    versions = {name: str(value) for run in pack.runs for name, value in run.provenance.get("versions", {}).items()}
    identities: list[list[Node]] = [
        [run.name, tag("code", str(run.provenance.get("identity", DASH)))] for run in pack.runs
    ]
    return section(
        "repeat",
        "How to repeat it",
        "The same plan, data, models and seeds give the same samples and, from deterministic models, the same answers.",
        tag("pre", "\n".join([*commands, "evenhand evidence " + " ".join(f"runs/{run.name}" for run in pack.runs)])),
        tag("h3", "Versions"),
        table(["Package", "Version"], list(map(list, sorted(versions.items()))), "Versions"),
        tag("h3", "Identity of the runs"),
        tag("p", "A hash of plan, data, models and prompts: a run with the same one has measured the same."),
        table(["Run", "Identity"], identities, "Identities"),
    )
