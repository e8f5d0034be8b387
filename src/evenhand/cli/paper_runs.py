"""What every paper's command does: orders of its runs, all checked before the first is paid for, and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.cli.options import Order, default_out, read_order
from evenhand.cli.run import run_order
from evenhand.errors import PlanError
from evenhand.methods.base import METHODS
from evenhand.models.budget import Limits
from evenhand.papers.base import Paper, PaperPage, PaperRun
from evenhand.runs.parts import check_plan
from evenhand.runs.store import FILE_NAME
from evenhand.specs import roles_and_specs, spec_parts


def make_orders(name: str, runs: Sequence[PaperRun], given: Mapping[str, Any], out: Path | None) -> list[Order]:
    """The runs as if they had been asked for by `evenhand run`, in their folders under `out`."""
    orders = [_order(run, given, _models_for(run, runs, given["models"])) for run in runs]
    folder = out or default_out(f"paper-{name}", *(order.plan for order in orders))
    return [replace(order, out=folder / run.folder) for order, run in zip(orders, runs, strict=True)]


def _models_for(run: PaperRun, runs: Sequence[PaperRun], models: Sequence[str]) -> list[str]:
    """The models without those of roles that only other runs have; a role that none has stays, to be refused."""
    if run.models:
        return list(run.models)
    elsewhere = {role for each in runs for role in _roles(each)} - _roles(run)
    return [text for text in models if roles_and_specs([text])[0][0] not in elsewhere]


def _roles(run: PaperRun) -> set[str]:
    return {role for method in run.methods for role in METHODS.get(spec_parts(method)[0]).roles}


def _order(run: PaperRun, given: Mapping[str, Any], models: Sequence[str]) -> Order:
    decided = {
        "config": None,
        "benchmark": run.benchmark,
        "settings": run.settings,
        "methods": run.methods,
        "models": models,
        "limit": run.limit,
        "seeds": (given["seed"],),
        "scorers": run.scorers or (given["scorers"] if run.scored else ()),
        "data": given["data"] if run.public else None,
        "out": None,
    }
    return read_order({**given, **decided}, default_methods=())


def check_orders(orders: Sequence[Order]) -> None:
    """Refuse what would only be found out when the first run has been paid for."""
    for order in orders:
        plan = order.plan
        benchmark = load_benchmark(plan.benchmark, **plan.benchmark_options)
        check_plan(plan, benchmark)
        next(iter(benchmark.samples(Selection(1, plan.seeds[0]))), None)
        if not order.settings.resume and (order.out / FILE_NAME).exists():
            raise PlanError(f"{order.out} holds a run already; pass --resume to go on with it, or another --out.")


def run_orders(orders: Sequence[Order], folder: Path, budget: Limits) -> Limits | None:
    """Run one after another within one budget; what is left of it, or None where it stopped them."""
    for order in orders:
        progress = run_order(replace(order, settings=replace(order.settings, budget=budget)), folder)
        if progress.stopped:
            return None
        budget = budget.less(progress.spent)
    return budget


def show_page(wanted: Paper, folder: Path, scorers: Sequence[str] = ()) -> None:
    """Page, CSV files and tables from the runs that are there."""
    from evenhand.papers.page.csv_files import write_csv_files
    from evenhand.papers.page.html import render_page
    from evenhand.reports.html import write_page

    found = [path for name in wanted.folders for path in sorted(folder.glob(name)) if (path / FILE_NAME).is_file()]
    there = {path.relative_to(folder).as_posix(): path for path in found}
    if not there:
        raise PlanError(f"{folder} holds no runs of a paper; pass --model to make them.")
    page = wanted.page(there, scorers)
    written = write_csv_files(page, folder)
    write_page(render_page(page), folder / "index.html")
    _print(page)
    click.echo(f"Page: {folder / 'index.html'}; numbers: {', '.join(path.name for path in written)}")


def _print(page: PaperPage) -> None:
    from rich.console import Console

    from evenhand.papers.page.terminal import printed

    console = Console()
    for table in printed(page, console.width):
        console.print(table)
    for warning in page.warnings:
        console.print(f"! {warning}", markup=False, highlight=False)
