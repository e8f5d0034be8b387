"""The pack as one HTML page, in the order in which an auditor reads: scope, data, methods, results, limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from evenhand.core.format import DASH, count, duration, money, p_value, plural
from evenhand.core.types import Usage
from evenhand.evidence.disclosed import repeats
from evenhand.evidence.facts import MappedItem, RunFacts
from evenhand.evidence.rates import FOUR_FIFTHS, rates_html
from evenhand.show.markup import Html, tag
from evenhand.show.page import Page, Part, footnote, opening, section, sentences
from evenhand.show.table import Cell, Column, Content, Table, code, columns, html_of, measured
from evenhand.show.view import estimate_cell, view_of
from evenhand.studies.results import ArmResult, StudyResult

if TYPE_CHECKING:
    from evenhand.evidence import Pack


def evidence_page(pack: Pack) -> Page:
    parts: list[tuple[str, str, Html | None]] = [
        ("scope", "Scope", _scope(pack)),
        ("data", "Data sheets", _data(pack)),
        ("methods", "Methods", _methods(pack)),
        ("results", "Results", _results(pack)),
        ("groups", "By group", _groups(pack)),
        ("rates", "Selection rates", _rates(pack)),
        ("limits", "Limits", section("limits", "Limits", "", sentences(pack.limits, None))),
        ("standards", "Laws and standards", _standards(pack)),
        ("repeat", "How to repeat it", _repeat(pack)),
    ]
    first = opening(
        pack.title,
        "evidence pack",
        tag("p", f"Made on {pack.made[:10]} from {plural(len(pack.runs), 'stored run')}.", class_="lead"),
        [_found(run, alone=len(pack.runs) == 1) for run in pack.runs],
        footnote("No statement of conformity with any law or standard."),
    )
    shown = [Part(name, title, html) for name, title, html in parts if html is not None]
    return Page(pack.title, [first, *shown], ("paper.css",))


def _found(run: RunFacts, *, alone: bool) -> Html:
    """What a run has found, and beside it all that qualifies its numbers."""
    study = run.study
    qualified = [each for each in dict.fromkeys((*study.caveats, *study.warnings)) if each not in study.verdicts]
    return tag(
        "div",
        None if alone else tag("h3", f"{run.name}: {study.benchmark}"),
        sentences(study.verdicts, "verdicts"),
        [tag("p", tag("b", "Read with it:")), sentences(f"{each.rstrip('.')}." for each in qualified)]
        if qualified
        else None,
    )


def _words(title: str, heads: Sequence[str], rows: Iterable[Sequence[Content]]) -> Html:
    return html_of(Table(title, columns(*heads, words=len(heads)), list(rows)))


def _scope(pack: Pack) -> Html:
    rows: list[list[Content]] = []
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
    return section("scope", "Scope", lead, _words("Scope", head, rows), _models(pack))


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
    return tag("div", tag("h3", "Models"), _words("Models", ["Model", "What identifies it"], rows))


def _listed(values: dict[str, Any]) -> Cell:
    shown = {key: _short(value) for key, value in values.items() if value not in (None, {}, [], "")}
    text = ", ".join(f"{key}: {value}" for key, value in shown.items())
    lines = [[f"{key}: ", tag("code", value)] for key, value in shown.items()]
    return Cell(text, html=sentences(lines, "plain"))


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
                _words(
                    sheet.name,
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
        _words("Methods", ["Method", "What it does"], methods.items()),
        tag("h3", "Metrics"),
        _words("Metrics", ["Benchmark", "Metric", "Good"], metrics),
        tag(
            "p",
            "Intervals are 95 % intervals. Samples of one template, scenario or writer are one cluster: shares and "
            "values on a known scale have Wilson intervals at the effective sample size, other values the cluster "
            "jackknife with Student's t. Differences are paired by sample, with permutation or exact McNemar "
            "tests, and p-values are corrected by Holm's method within a run. "
            "Refusals and unreadable answers count in no score; see coverage.",
        ),
        tag("h3", "Prompts"),
        tag("p", "The hash is that of the prompt's text; the texts are in the stored runs and in the package."),
        _words("Prompts", ["Prompt", "Hash"], [[name, code(digest)] for name, digest in sorted(prompts.items())])
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
    shown = [(view.info(name).title, name, "all") for name in run.main_metrics]
    return tag(
        "div",
        tag("h3", run.study.title),
        html_of(_arms_table(run, run.name, "Metric", shown)),
        _effects(run.study),
        sentences((*run.study.verdicts, *run.study.caveats), None),
    )


def _arms_table(run: RunFacts, title: str, first: str, shown: Sequence[tuple[str, str, str]]) -> Table:
    """Return a row for each (name, metric, group) with the estimate of every arm."""
    rows: list[list[Content]] = [
        [name, *(estimate_cell(arm.estimate(metric, group), run.study.digits(metric)) for arm in run.arms)]
        for name, metric, group in shown
    ]
    return Table(title, columns(first, *(arm.label for arm in run.arms)), rows, look="iterations")


def _effects(study: StudyResult) -> Html | None:
    labels = {arm.id: arm.label for arm in study.arms}
    rows: list[list[Content]] = [
        [
            f"{labels.get(each.before, each.before)} → {labels.get(each.after, each.after)}",
            each.metric,
            measured(each.difference, each.low, each.high, study.digits(each.metric), sign=True, n=each.n),
            p_value(each.p_adjusted),
            each.test,
        ]
        for each in study.effects
        if each.group == "all" and each.difference is not None
    ]
    heads = columns("Comparison", "Metric", "Difference", "p (corrected)", words=2)
    return html_of(Table("Comparisons", [*heads, Column("Test")], rows)) if rows else None


def _groups(pack: Pack) -> Html | None:
    blocks: list[Html] = []
    for run in pack.runs:
        name = run.group_metric
        if name is None:
            continue
        title = f"{run.study.benchmark}: {view_of(run.study).info(name).title}"
        table = _arms_table(run, title, "Group", [(group, name, group) for group in run.study.groups])
        blocks.append(tag("div", tag("h3", title), html_of(table)))
    lead = "The headline for each group of samples, or the next metric that is defined for groups."
    return section("groups", "By group", lead, blocks) if blocks else None


def _rates(pack: Pack) -> Html | None:
    blocks = [
        tag("div", tag("h3", f"{run.study.benchmark}, {each.arm}"), [*map(rates_html, each.tables)])
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


def _standards(pack: Pack) -> Html:
    blocks = [
        tag(
            "div",
            tag("h3", each.name),
            footnote([each.source, ". ", _looked_up(each.items)]),
            _words(
                each.name, ["Item", "Asks for", "In this pack"], [[e.shown, e.asks, e.evidence] for e in each.items]
            ),
        )
        for each in pack.standards
    ]
    lead = (
        "Where this pack can serve as evidence, and where it cannot. The items are put in our own words; nothing here "
        "states conformity, and no single measurement could. An item is marked unverified, with the day, if no "
        "text that could be read has its number or wording."
    )
    return section("standards", "Laws and standards", lead, blocks)


def _looked_up(items: Sequence[MappedItem]) -> list[Html | str]:
    """Say in which public texts the items were looked up, and when."""
    parts: list[Html | str] = ["Numbers and subjects looked up in"]
    for text, read in dict.fromkeys((item.text, item.read) for item in items):
        parts += [" ", tag("a", urlsplit(text).hostname or text, href=text), f" ({read})"]
    return [*parts, "."]


def _repeat(pack: Pack) -> Html:
    commands = ["evenhand evidence verify .", *(each for run in pack.runs for each in repeats(run.plan, run.name))]
    asked = [f"repeated/{run.name}" for run in pack.runs if repeats(run.plan, run.name)]
    commands += [f"evenhand evidence pack {' '.join(asked)}"] if asked else []
    versions = {name: str(value) for run in pack.runs for name, value in run.provenance.get("versions", {}).items()}
    identities = [[run.name, code(str(run.provenance.get("identity", DASH)))] for run in pack.runs]
    return section(
        "repeat",
        "How to repeat it",
        "In the folder of this pack. The first command computes every number again from the grades in the pack. The "
        "others ask the models again: the same plan, data, models and seeds give the same samples and, from "
        "deterministic models, the same answers.",
        tag("pre", "\n".join(commands)),
        tag("h3", "Versions"),
        _words("Versions", ["Package", "Version"], sorted(versions.items())),
        tag("h3", "Identity of the runs"),
        tag(
            "p",
            "A hash of plan, data, models and prompts: a run with the same one has measured the same. The names of "
            "files of the user's own are part of it, and are others in this pack.",
        ),
        _words("Identities", ["Run", "Identity"], identities),
    )
