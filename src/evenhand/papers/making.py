"""Reproduces a paper: its runs, each checked before the first call, and its page."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evenhand.core import aio
from evenhand.core.errors import PlanError, UsageError, check_names
from evenhand.core.files import write_text
from evenhand.core.format import plural
from evenhand.core.progress import Listener
from evenhand.core.types import Usage
from evenhand.core.untrusted import clean
from evenhand.judging.judge import JUDGE, is_judge
from evenhand.methods.base import METHODS
from evenhand.models.budget import Price
from evenhand.papers.base import (
    PAPERS,
    Grid,
    Paper,
    PaperClaim,
    PaperOptions,
    PaperPage,
    PlannedPaper,
)
from evenhand.papers.page import grid_table, paper_page, write_csv_files
from evenhand.runs.execute import SeriesRun, check_runs, run_all
from evenhand.runs.file import leaving_out_damaged
from evenhand.runs.parts import Settings
from evenhand.runs.plan import default_folder
from evenhand.runs.store import FILE_NAME
from evenhand.runs.summary import read_summary
from evenhand.show.markup import Html, tag
from evenhand.show.notebook import html_file, lead_chart
from evenhand.show.page import details, sentences
from evenhand.show.table import Tabular, notebook_html
from evenhand.show.view import view_of

CLAIMS = "claims"
"""The table of claims."""


@dataclass(frozen=True, slots=True, repr=False)
class PaperResult(Tabular):
    """The page of a paper and its files."""

    page: PaperPage
    html: Path
    csv: Sequence[Path]
    stopped: bool = False
    """Whether the budget ran out before all runs finished; the page shows the finished part."""
    nothing_measured: bool = False
    """Whether no sample of any run has a result; the page's first warning says why."""

    def __repr__(self) -> str:
        stopped = ", stopped by the budget" if self.stopped else ""
        counts = f"{plural(len(self.page.tables), 'table')}, {plural(len(self.page.figures), 'figure')}"
        return clean(f"PaperResult({self.page.title}: {counts}{stopped}, {self.html})")

    @property
    def verdicts(self) -> list[str]:
        """The results of the paired comparisons of all tables, in sentences."""
        return [sentence for table in self.page.tables for sentence in table.sentences]

    @property
    def claims(self) -> Sequence[PaperClaim]:
        """What the paper says, each with its verdict on a model and the reason."""
        return self.page.claims

    def rows(self, table: str = "") -> list[dict[str, Any]]:
        """One row for each cell of the tables, or of the one with the id `table`: our number and the published one.

        The table `claims` has a row for each claim and model.
        """
        known = [*(each.id for each in self.page.tables), CLAIMS]
        check_names("table of this paper", known, *filter(None, [table]))
        if table == CLAIMS:
            return [asdict(each) for each in self.claims]
        return [
            {
                "table": each.id,
                "grid": grid.name,
                "method": row.method,
                "setting": row.setting,
                "metric": column.name,
                **{name: getattr(cell.estimate, name, None) for name in ("value", "low", "high", "n")},
                "published": cell.published,
                "sd": cell.spread,
            }
            for each in self.page.tables
            if table in ("", each.id)
            for grid in each.grids
            for row in grid.rows
            for column, cell in zip(grid.columns, row.cells, strict=True)
        ]

    def save(self, path: str | Path) -> Path:
        """Write the page once more, elsewhere."""
        target = html_file(path)
        write_text(target, self.html.read_text(encoding="utf-8"))
        return target

    def _repr_html_(self) -> str:
        tables = [details(each.title, [_grid_html(grid) for grid in each.grids]) for each in self.page.tables]
        return tag(
            "div",
            tag("p", tag("b", self.page.title)),
            sentences(self.verdicts, None),
            lead_chart(view_of(self.page.process)) if self.page.process else None,
            tables,
        )


def _grid_html(grid: Grid) -> Html:
    return tag("div", tag("p", grid.name) if grid.name else None, notebook_html(grid_table(grid.name, grid)))


@dataclass(frozen=True, slots=True)
class PlannedRuns:
    """The runs of a paper, checked, and their folder."""

    paper: Paper[Any]
    runs: Sequence[SeriesRun]
    folder: Path
    preparation: str = ""
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()

    @contextmanager
    def forecast(self, prices: Mapping[str, Price]) -> Generator[tuple[Sequence[SeriesRun], Usage]]:
        """The runs, which need nothing before them."""
        del prices
        yield self.runs, Usage()

    def make(self, settings: Settings, listener: Listener) -> PaperResult:
        """Run all pending samples within one budget and write the page."""
        check_runs(self.runs, self.folder, settings)
        left = aio.run(run_all(self.runs, self.folder, settings, listener))
        result = write_page(self.paper, self.folder, skip_damaged=settings.skip_damaged)
        return replace(result, stopped=left is None)


def options_of(paper: Paper[Any], given: Mapping[str, Any]) -> PaperOptions:
    """Return the paper's options; one that it would ignore is refused."""
    for name in given:
        if name not in paper.Options.offered() and is_of_another(paper, name):
            raise UsageError(f"The paper {paper.name} has no use for {name}; remove it.")
    return paper.Options.parse(f"paper {paper.name}", given)


def is_of_another(paper: Paper[Any], word: str) -> bool:
    """Whether another paper has an option of this name or flag."""
    others = [PAPERS.get(name).Options for name in PAPERS.names() if name != paper.name]
    return any(word in (name, each.face(name).flag) for each in others for name in each.offered())


def plan_paper(name: str, options: PaperOptions, out: Path | None = None, *, priced: bool = False) -> PlannedPaper:
    """Return what is to be done for the paper, without reading or calling anything; if only `priced`, anywhere."""
    paper = PAPERS.get(name)
    check_models(options)
    if (more := paper.planned(options, out or (Path(name) if priced else None))) is not None:
        return more
    runs = paper.runs(options)
    check_roles(runs, options)
    check_methods(runs, options)
    return PlannedRuns(paper, runs, out or default_folder(f"paper-{name}", *(run.plan for run in runs)))


def write_page(
    paper: Paper[Any], folder: Path, scorers: Sequence[str] = (), *, skip_damaged: bool = False
) -> PaperResult:
    """Page and CSV files from the runs in `folder`, without a call; `scorers` count instead of the planned ones."""
    found = [path for name in paper.folders for path in sorted(folder.glob(name)) if (path / FILE_NAME).is_file()]
    if not found:
        raise PlanError(f"{folder} holds no runs of a paper; pass --model to make them.")
    with leaving_out_damaged() if skip_damaged else nullcontext(list[str]) as left_out:
        page = paper.page({path.relative_to(folder).as_posix(): path for path in found}, scorers)
        reasons = _nothing_measured(found)
    warnings = [*([reasons] if reasons else []), *left_out(), *page.warnings]
    page = replace(page, warnings=warnings, elements=paper.elements)
    written = write_csv_files(page, folder)
    paper_page(page).write(folder / "index.html")
    return PaperResult(page, folder / "index.html", written, nothing_measured=reasons is not None)


def _nothing_measured(runs: Sequence[Path]) -> str | None:
    """Say why nothing was measured in any of the runs; None if something was."""
    found = [read_summary(run) for run in runs]
    if not all(each.nothing_measured for each in found):
        return None
    reasons = [
        f"{count:,} × {status}, {reason.rstrip('. ')}" for each in found for status, reason, count in each.reasons(1)
    ]
    return f"Nothing was measured: no sample has a grade. Reasons: {'; '.join(dict.fromkeys(reasons))}."


def check_models(options: PaperOptions) -> None:
    """Refuse too few models, and more than the page can show."""
    count = len(options.assigned)
    if not count:
        raise PlanError("No model is named; pass --model, e.g. --model local/builtin.")
    if count > 1 and not options.several_models:
        raise UsageError("A page of this paper shows one model; make one for each, or name the second as judge=SPEC.")


def check_methods(runs: Sequence[SeriesRun], options: PaperOptions) -> None:
    """Refuse options of a method that no run has."""
    known = {method.name for run in runs for method in run.plan.methods}
    check_names("method of this paper", known, *options.asked_of_methods)


def check_roles(runs: Sequence[SeriesRun], options: PaperOptions) -> None:
    """Refuse a model for a role that no run has."""
    known = {role for run in runs for method in run.plan.methods for role in METHODS.get(method.name).roles}
    for role in {role for models in options.assigned for role in models} - known - {"base"}:
        if is_judge(role) and JUDGE in known:
            continue
        raise PlanError(f"No method of this paper uses a model for the role {role!r}.")
