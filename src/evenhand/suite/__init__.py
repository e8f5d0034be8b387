"""A suite: one model on many benchmarks, one after another within one budget, and one page about all of them.

A suite is a YAML file of areas, each with the runs that measure it. The first run whose benchmark is installed and
whose data are here is made; an area without such a run is named with the reason, so that nobody takes silence for a
good result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from evenhand.benchmarks.base import BENCHMARKS, Selection, load_benchmark
from evenhand.core import aio
from evenhand.core.errors import DataError, EvenhandError, UsageError
from evenhand.core.files import checked, read_yaml
from evenhand.core.format import count, duration, money, percent, plural
from evenhand.core.progress import Listener
from evenhand.core.registry import is_file
from evenhand.core.types import Status, Usage
from evenhand.judging.judge import JUDGE, is_judge
from evenhand.runs.execute import SeriesRun, check_runs, run_all
from evenhand.runs.parts import Settings
from evenhand.runs.plan import Assignment, Plan, default_folder, make_plan
from evenhand.runs.store import FILE_NAME
from evenhand.show.markup import tag
from evenhand.show.page import Page, Part, footnote, opening, section
from evenhand.show.report import write_report
from evenhand.show.sections.overview import finding_html
from evenhand.show.table import Cell, Table, columns, html_of
from evenhand.show.view import look_of
from evenhand.studies.conclusions import AVOIDING, GUESSING, ONE_LETTER
from evenhand.studies.results import SERIOUS, Estimate, Finding, StudyResult, Verdict
from evenhand.studies.samples import shown_samples
from evenhand.studies.study import study

SUITES = ("quick", "full")
PAGE = "suite.html"
_DOUBTS = {
    GUESSING: "it may be guessing",
    AVOIDING: "it avoids the right answer",
    ONE_LETTER: "it prefers one letter",
}
"""What a warning of a study says → the same in a few words."""
_MANY = 0.05


class _Area(BaseModel):
    """An area of a suite file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    area: str
    asks: str
    runs: tuple[dict[str, Any], ...] = ()
    missing: str = ""
    needs_judge: bool = False


class _Suite(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    areas: tuple[_Area, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class AreaRun:
    """An area that is measured, by one run."""

    area: str
    asks: str
    run: SeriesRun


@dataclass(frozen=True, slots=True)
class Missing:
    """An area that is not measured."""

    area: str
    asks: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedSuite:
    """The runs of a suite, what it leaves out, and its folder."""

    name: str
    parts: Sequence[AreaRun]
    missing: Sequence[Missing]
    folder: Path

    @property
    def runs(self) -> list[SeriesRun]:
        return [part.run for part in self.parts]


@dataclass(frozen=True, slots=True)
class AreaResult:
    """What was found in one area."""

    area: str
    asks: str
    benchmark: str
    folder: Path
    title: str
    """The name of the headline metric."""
    estimate: Estimate | None
    how_sure: str
    found: str
    """What was found, in one sentence."""
    details: str
    """More numbers, in sentences."""
    usage: Usage
    seconds: float
    verdict: Verdict = "measured"
    """The word for what was found."""


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """One page: the areas with what was found, and those that were not measured."""

    name: str
    folder: Path
    rows: Sequence[AreaResult]
    missing: Sequence[Missing]
    stopped: bool = False
    """Whether the budget ended before all runs."""
    model: str = ""


def plan_suite(
    name: str, models: Sequence[Assignment], out: Path | None = None, *, fields: dict[str, Any] | None = None
) -> PlannedSuite:
    """Return the runs of a suite, checked for data; `fields` go into every plan."""
    if len(models) != 1:
        raise UsageError("A suite measures one model under one prompt; name it with --model SPEC, and run each alone.")
    suite = read_suite(name)
    parts: list[AreaRun] = []
    missing: list[Missing] = []
    for area in suite.areas:
        found = _plan_of(area, models, fields or {})
        if isinstance(found, Plan):
            folder = re.sub(r"[\W_]+", "-", area.area.lower()).strip("-")
            if folder in ("", *(part.run.folder for part in parts)):
                raise UsageError(f"Each area of a suite needs a name of its own with letters, not {area.area!r}.")
            parts.append(AreaRun(area.area, area.asks, SeriesRun(folder, found)))
        else:
            missing.append(Missing(area.area, area.asks, found))
    if not parts:
        raise UsageError(f"Nothing of the suite {name} can be measured here: {missing[0].reason}.")
    short = Path(name).stem
    return PlannedSuite(
        short, parts, missing, out or default_folder(f"suite-{short}", *(each.run.plan for each in parts))
    )


def read_suite(name: str) -> _Suite:
    """Read a suite by its name, or from a file of the user's own."""
    if name in SUITES:
        content = read_yaml(files(__package__ or "") / f"{name}.yaml")
    elif is_file(name) or name.endswith((".yaml", ".yml")):
        content = read_yaml(Path(name))
    else:
        raise UsageError(f"There is no suite {name!r}; name {' or '.join(SUITES)}, or a YAML file of your own.")
    if not isinstance(content, dict):
        raise DataError("is not a suite: it begins with a line 'areas:'.", file=Path(name))
    with checked("a suite", name):
        return _Suite.model_validate(content)


def _plan_of(area: _Area, models: Sequence[Assignment], fields: dict[str, Any]) -> Plan | str:
    """The plan of the first run that can be made, or why there is none."""
    if area.missing or not area.runs:
        return area.missing or "no run is given for it"
    if area.needs_judge and not any(JUDGE in each for each in models):
        return "needs a judge: --judge SPEC"
    reason = ""
    for given in area.runs:
        name = str(given.get("benchmark", ""))
        if name not in BENCHMARKS.names() and not is_file(name):
            reason = reason or f"no benchmark {name} is installed"
            continue
        suited = [
            {role: model for role, model in each.items() if area.needs_judge or not is_judge(role)} for each in models
        ]
        own = {"methods": ["default"], **fields, **given, "models": suited}
        try:
            plan = make_plan(own)
            benchmark = load_benchmark(plan.benchmark, **plan.benchmark_options)
            next(iter(benchmark.samples(Selection(1, plan.seeds[0]))), None)
            benchmark.fingerprint()
        except DataError as error:
            pull = re.search(r"evenhand data pull \w+", str(error))
            reason = reason or f"no data: {pull[0] if pull else f'see the page on {name}'}"
            continue
        return plan
    return reason


def run_suite(planned: PlannedSuite, settings: Settings, listener: Listener) -> SuiteResult:
    """Run all pending samples within one budget, then read the page."""
    check_runs(planned.runs, planned.folder, settings)
    left = aio.run(run_all(planned.runs, planned.folder, settings, listener))
    return read_results(planned, stopped=left is None)


def read_results(planned: PlannedSuite, *, stopped: bool = False) -> SuiteResult:
    """The page from the stored runs, and the report of each; no model is called."""
    rows: list[AreaResult] = []
    missing = list(planned.missing)
    not_run = f"not run: {'the budget ended before' if stopped else f'evenhand resume {planned.folder}'}"
    for part in planned.parts:
        folder = planned.folder / part.run.folder
        if not (folder / FILE_NAME).is_file():
            missing.append(Missing(part.area, part.asks, not_run))
            continue
        try:
            result = study([folder])
        except EvenhandError as error:
            missing.append(Missing(part.area, part.asks, str(error).rstrip(".")))
            continue
        write_report(result, shown_samples([folder], 300), folder / "report.html")
        rows.append(_row(part, folder, result))
    model = planned.parts[0].run.plan.models[0]["base"].spec
    found = SuiteResult(planned.name, planned.folder, rows, missing, stopped, model)
    suite_page(found).write(planned.folder / PAGE)
    text = orjson.dumps(_plain(found), option=orjson.OPT_INDENT_2, default=str)
    (planned.folder / "suite.json").write_bytes(text)
    return found


def _plain(result: SuiteResult) -> dict[str, Any]:
    return {
        "suite": result.name,
        "model": result.model,
        "areas": [{**asdict(row), "folder": row.folder.name} for row in result.rows],
        "not_measured": [asdict(each) for each in result.missing],
        "stopped": result.stopped,
    }


def _row(part: AreaRun, folder: Path, result: StudyResult) -> AreaResult:
    arm = result.arms[0]
    metric = next(each for each in result.metrics if each.name == result.headline)
    estimate = arm.estimate(result.headline)
    found, details = _in_words(result)
    used = sum(arm.usage.values(), result.scoring)
    return AreaResult(
        part.area,
        part.asks,
        result.benchmark,
        folder,
        metric.title,
        estimate,
        _how_sure(result, arm.estimate(result.lead)),
        found,
        details,
        used,
        arm.seconds,
        result.findings[0].verdict if result.findings else "cannot tell",
    )


def _in_words(result: StudyResult) -> tuple[str, str]:
    """The first finding as a sentence, without the name of the model, and what else was found."""
    if not result.findings:
        return "", ""
    first, *others = (_unnamed(finding) for finding in result.findings)
    return first, " ".join([result.findings[0].detail, *others]).strip()


def _unnamed(finding: Finding) -> str:
    text = finding.text
    if finding.who and text.startswith(f"{finding.who}: "):
        text = text.removeprefix(f"{finding.who}: ")
    elif finding.who and text.startswith(f"{finding.who} "):
        text = f"it {text.removeprefix(f'{finding.who} ')}"
    if finding.verdict not in ("found", "measured"):
        text = f"{finding.word}: {text}"
    return f"{text[:1].upper()}{text[1:]}."


def _how_sure(result: StudyResult, estimate: Estimate | None) -> str:
    """The number of samples, how many are missing, and why the interval of what was found may be doubtful."""
    arm = result.arms[0]
    done = sum(arm.statuses.values())
    words = [f"{done:,} samples"]
    if estimate is None or estimate.value is None:
        words.append("undefined")
    elif estimate.few_clusters:
        words.append("few clusters: the interval may be too narrow")
    missing: dict[Status, str] = {
        "refused": "were declined",
        "failed": "failed",
        "cut": "were cut off",
        "unscored": "could not be read",
    }
    for status, what in missing.items():
        share = arm.statuses.get(status, 0) / max(1, done)
        if share > _MANY:
            words.append(f"{percent(share, 0)} {what}")
    if arm.pending:
        words.append(f"{arm.pending:,} not run")
    words += [short for said, short in _DOUBTS.items() if any(said in each for each in result.warnings)]
    return "; ".join(words)


NO_TOTAL = "Areas have scales of their own, so that their numbers cannot be compared or averaged."


def suite_page(result: SuiteResult) -> Page:
    title = f"Suite {result.name}: {result.model}" if result.model else f"Suite {result.name}"
    lead = f"{NO_TOTAL} In brackets: 95 % intervals. In all: {sum_of(result)}."
    found = finding_of(result)
    box = tag("div", finding_html(found, first=True), class_=f"verdicts {look_of(found.verdict)}")
    content = [box, tag("p", lead, class_="lead"), html_of(areas_table(result))]
    return Page(title, [opening(title, "one model in many areas", content), _missing(result)])


def finding_of(result: SuiteResult) -> Finding:
    """Return one sentence: the areas with findings, and the areas that are undecided."""
    areas = {
        name: [row.area for row in result.rows if row.verdict in verdicts]
        for name, verdicts in (("found", SERIOUS), ("none", ("nothing found",)), ("open", ("cannot tell",)))
    }
    total = f"{plural(len(result.rows), 'area')}"
    total += f" ({len(result.missing)} not measured)" if result.missing else ""
    unclear = f"; nothing beyond chance in {_listed(areas['none'])}" if areas["none"] else ""
    unclear += f"; undecided or not measurable in {_listed(areas['open'])}" if areas["open"] else ""
    who = result.model or "the model"
    if not areas["found"]:
        verdict: Verdict = "cannot tell" if areas["open"] or areas["none"] else "measured"
        return Finding(verdict, f"{who} was asked in {total}, and nothing was found for certain{unclear}", who)
    text = f"{who} shows bias or another fault in {len(areas['found'])} of {total}: {_listed(areas['found'])}"
    return Finding("found", f"{text}{unclear}", who)


def _listed(areas: Sequence[str]) -> str:
    return ", ".join(f"“{area}”" for area in areas)


def areas_table(result: SuiteResult) -> Table:
    """Return each area with what was found, for the page and for the terminal."""
    rows = [
        [Cell(row.area, href=f"{row.folder.name}/report.html"), _found(row), row.how_sure, cost(row)]
        for row in result.rows
    ]
    title = f"Suite {result.name}: {result.model}"
    return Table(title, columns("Area", "Found", "How sure", "Cost", words=4), rows, ends=range(len(rows)))


def _found(row: AreaResult) -> Cell:
    """Return what was found; the page also says what was asked, and gives details."""
    more = footnote(row.details) if row.details else None
    return Cell(row.found, html=[tag("em", row.asks), tag("p", row.found), more])


def cost(row: AreaResult) -> str:
    """Calls, money and time, in a few words."""
    return f"{plural(row.usage.calls, 'call')}, {money(row.usage.cost)}, {duration(row.seconds)}"


def sum_of(result: SuiteResult) -> str:
    """The cost of all areas, in a few words."""
    total = sum((row.usage for row in result.rows), Usage())
    seconds = duration(sum(row.seconds for row in result.rows))
    return f"{plural(total.calls, 'call')}, {count(total.tokens)} tokens, {money(total.cost)}, {seconds}"


def _missing(result: SuiteResult) -> Part | None:
    if not result.missing:
        return None
    rows = [[each.area, each.asks, each.reason] for each in result.missing]
    table = Table("Not measured", columns("Area", "What it asks", "Why not", words=3), rows)
    return Part("missing", "Not measured", section("missing", "Not measured", None, html_of(table)))
