"""Reproduces a paper: its runs, each checked before the first call, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evenhand import aio
from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.errors import PlanError, UsageError
from evenhand.methods.base import METHODS
from evenhand.models.budget import Limits
from evenhand.papers.base import PAPERS, Choice, Paper, PaperOptions, PaperPage, PaperRun
from evenhand.runs.parts import Settings, check_plan
from evenhand.runs.plan import default_folder
from evenhand.runs.runner import Runner
from evenhand.runs.store import FILE_NAME
from evenhand.workflows.listener import Listener

_CHOICES: tuple[Choice, ...] = (
    "scorers",
    "completions",
    "search",
    "accept",
    "look",
    "judge",
    "trained",
    "pairs",
    "bias",
)
"""Options that only some papers take."""


@dataclass(frozen=True, slots=True)
class PlannedPaper:
    """The runs of a paper and their folder."""

    paper: Paper
    runs: Sequence[PaperRun]
    folder: Path


@dataclass(frozen=True, slots=True)
class PaperResult:
    """The page of a paper and its files."""

    page: PaperPage
    html: Path
    csv: Sequence[Path]
    stopped: bool = False
    """Whether the budget ran out before all runs finished; the page shows the finished part."""


def plan_paper(name: str, options: PaperOptions, out: Path | None = None) -> PlannedPaper:
    """Return the runs that the paper needs, without reading or calling anything."""
    paper = PAPERS.get(name)
    check_options(paper, options)
    runs = paper.runs(options)
    check_roles(runs, options)
    return PlannedPaper(paper, runs, out or default_folder(f"paper-{name}", *(run.plan for run in runs)))


def make_paper(planned: PlannedPaper, settings: Settings, listener: Listener) -> PaperResult:
    """Run all pending samples within one budget and write the page."""
    check_runs(planned.runs, planned.folder, settings)
    left = aio.run(run_all(planned.runs, planned.folder, settings, listener))
    return replace(write_page(planned.paper, planned.folder), stopped=left is None)


def write_page(paper: Paper, folder: Path, scorers: Sequence[str] = ()) -> PaperResult:
    """Page and CSV files from the runs in `folder`, without a call; `scorers` count instead of the planned ones."""
    from evenhand.papers.page.csv_files import write_csv_files
    from evenhand.papers.page.html import render_page
    from evenhand.reports.html import write_page as write_html

    found = [path for name in paper.folders for path in sorted(folder.glob(name)) if (path / FILE_NAME).is_file()]
    if not found:
        raise PlanError(f"{folder} holds no runs of a paper; pass --model to make them.")
    page = paper.page({path.relative_to(folder).as_posix(): path for path in found}, scorers)
    written = write_csv_files(page, folder)
    write_html(render_page(page), folder / "index.html")
    return PaperResult(page, folder / "index.html", written)


def check_choices(paper: Paper, options: PaperOptions) -> None:
    """Refuse options that the paper would ignore."""
    for name in _CHOICES:
        if getattr(options, name) and name not in paper.takes:
            raise UsageError(f"The paper {paper.name} has no use for {name}; remove it.")


def check_options(paper: Paper, options: PaperOptions) -> None:
    """Refuse options that the paper would ignore or that contradict each other."""
    check_choices(paper, options)
    if not options.models:
        raise PlanError("No model is named; pass --model, e.g. --model local/builtin.")
    if len(options.models) > 1 and "models" not in paper.takes:
        raise UsageError("A page of this paper shows one model; make one for each, or name the second as judge=SPEC.")
    if options.builtin and options.data:
        raise UsageError("The built-in data sets need no folder; remove --data, or --builtin.")
    if "," in (options.search or ""):
        raise UsageError("A paper searches with one provider, without a comma, e.g. wikipedia or corpus:FOLDER.")


def check_roles(runs: Sequence[PaperRun], options: PaperOptions) -> None:
    """Refuse a model for a role that no run has."""
    known = {role for run in runs for method in run.plan.methods for role in METHODS.get(method.name).roles}
    for role in {role for models in options.models for role in models} - known - {"base"}:
        raise PlanError(f"No method of this paper uses a model for the role {role!r}.")


def check_runs(runs: Sequence[PaperRun], folder: Path, settings: Settings) -> None:
    """Find mistakes that would otherwise appear only after the first run was paid for."""
    for run in runs:
        plan, place = run.plan, folder / run.folder
        benchmark = load_benchmark(plan.benchmark, **plan.benchmark_options)
        check_plan(plan, benchmark)
        next(iter(benchmark.samples(Selection(1, plan.seeds[0]))), None)
        if not settings.resume and (place / FILE_NAME).exists():
            raise PlanError(f"{place} holds a run already; pass --resume to go on with it, or another --out.")


async def run_all(runs: Sequence[PaperRun], folder: Path, settings: Settings, listener: Listener) -> Limits | None:
    """Run one after another within one budget; what is left of it, or None where it stopped them."""
    left = settings.budget
    for run in runs:
        place = folder / run.folder
        runner = Runner(run.plan, place, replace(settings, budget=left), listener.run_began(place))
        progress = await runner.run()
        listener.run_ended(place, progress)
        if progress.stopped:
            return None
        left = left.less(progress.spent)
    return left
