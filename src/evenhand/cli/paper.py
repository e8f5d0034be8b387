"""`evenhand paper`: run what a paper ran, and show its tables and figures beside the published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.cli.options import Order, default_out, plan_options_without, read_order, roles_and_specs
from evenhand.cli.run import STOPPED, print_forecast, run_order
from evenhand.errors import PlanError, UsageError
from evenhand.methods.base import METHODS
from evenhand.models.base import split_spec
from evenhand.papers.base import PAPERS, Ask, Paper, PaperPage, PaperRun
from evenhand.runs.parts import check_plan
from evenhand.runs.store import FILE_NAME

_FIXED = ("config", "benchmark", "settings", "methods")
"""Options of a plan that the paper decides."""
_OWN = ("data", "models", "seeds", "limit", "out")
"""Options of a plan that mean something narrower here."""

_CHOICES = {
    "completions": "--completions",
    "search": "--search",
    "accept": "--accept",
    "look": "--look",
    "scorers": "--scorer",
}
"""What only some papers take, and its flag."""
_OF_TRAINING = {
    "judge": "--judge",
    "trained": "--trained",
    "pairs": "--pairs",
}
"""What only papers that train models take, and its flag."""


@click.command()
@click.argument("name", metavar="PAPER")
@click.option(
    "--model", "-M", "models", multiple=True, metavar="[ROLE=]SPEC", help="The model; judge=SPEC judges its answers."
)
@click.option("--limit", type=click.IntRange(1), help="Items of each kind, e.g. per category (default: as the paper).")
@click.option("--completions", type=click.IntRange(1), help="Completions per prompt (default: as the paper).")
@click.option("--search", metavar="SPEC", help="Where to search, for papers that do (default ddgs).")
@click.option(
    "--accept", type=click.FloatRange(1, 10), help="MABRF's bound on bias, for the judge: evenhand doctor SPEC --judge."
)
@click.option("--look", is_flag=True, help="MABRF's judge looks at the passage first, where the doctor says so.")
@click.option("--judge", metavar="SPEC", help="RLDF's judge of answers: neither the model nor its teacher.")
@click.option(
    "--trained",
    multiple=True,
    metavar="ARM=SPEC",
    help="A model that RLDF's table is about: sft, rlaif, rldf, rldf_sr, rldf_ts, or rldf:TEACHER.",
)
@click.option("--pairs", metavar="FOLDER", help="The pairs that it was trained on: RLDF asks what they hold out.")
@click.option("--builtin", is_flag=True, help="Our own data sets, with nothing to download.")
@click.option("--data", metavar="FOLDER", help="Where the public data sets lie.")
@click.option("--seed", type=int, default=0, show_default=True, help="Draws the items.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of page, CSV files and runs (default runs/NAME).")
@plan_options_without(*_FIXED, *_OWN)
def paper(name: str, out: Path | None, **given: Any) -> int:
    """Make the tables and figures of a PAPER with your model, beside the published numbers.

    \b
    PAPER is one of
      stardtox   Tables II and III and Figure 3
      mabrf      Tables 3, 4 and 5 and Figure 4; several models stand side by side
      malibu     Figures 4, 5, 6 and 9 and the chi-square tests; several models likewise
      rldf       Tables 1 to 5 and Figures 5, 6 and 8 to 12; with models that were trained

    Its runs are ordinary run directories under --out. With --out alone, the page is made again from what is there,
    without a call.

    \b
    Examples:
      evenhand paper stardtox --model local/builtin --builtin --limit 1 --completions 2
      evenhand paper mabrf --model openai/NAME --model judge=openai/OTHER --search wikipedia --dry-run
      evenhand paper malibu --model openai/NAME --model openai/OTHER --limit 1 --dry-run
      evenhand paper rldf --model hf/PATH --judge openai/NAME --trained rldf=hf/PPO --pairs PAIRS
      evenhand paper stardtox --out runs/paper-stardtox-1a2b3c4d
    """
    wanted = PAPERS.get(name)
    _check_choices(wanted, given)
    if not given["models"] and out is not None:
        _show(wanted, out, _judges(given) or given["scorers"])
        return 0
    runs = wanted.runs(_ask(given))
    orders = [_order(run, given, _models_for(run, runs, given["models"])) for run in runs]
    folder = out or default_out(f"paper-{name}", *(order.plan for order in orders))
    orders = [replace(order, out=folder / run.folder) for order, run in zip(orders, runs, strict=True)]
    if orders[0].dry_run:
        print_forecast(*orders)
        return 0
    _check(orders)
    stopped = _run(orders, folder)
    _show(wanted, folder)
    return STOPPED if stopped else 0


def _check_choices(wanted: Paper, given: Mapping[str, Any]) -> None:
    """Refuse flags that the paper has no use for, rather than leave them unheard."""
    for choice, flag in _CHOICES.items():
        if given[choice] and choice not in wanted.takes:
            raise UsageError(f"The paper {wanted.name} has no use for {flag}; leave it away.")
    for choice, flag in _OF_TRAINING.items():
        if given[choice] and "training" not in wanted.takes:
            raise UsageError(f"The paper {wanted.name} has no use for {flag}; leave it away.")
    bases = [spec for role, spec in roles_and_specs(given["models"]) if role == "base"]
    if len(bases) > 1 and "models" not in wanted.takes:
        raise UsageError("A page of this paper shows one model; make one for each, or name the second as judge=SPEC.")


def _ask(given: Mapping[str, Any]) -> Ask:
    bases = [spec for role, spec in roles_and_specs(given["models"]) if role == "base"]
    if not bases:
        raise PlanError("No model is named; pass --model, e.g. --model local/builtin.")
    if given["builtin"] and given["data"]:
        raise UsageError("--builtin uses our own data sets; leave --data away, or --builtin.")
    if "," in (given["search"] or ""):
        raise UsageError("--search takes one provider, without a comma, e.g. wikipedia or corpus:FOLDER.")
    return Ask(
        bases[0],
        given["limit"],
        given["completions"],
        given["builtin"],
        given["search"],
        given["accept"],
        given["look"],
        given["judge"],
        _trained(given["trained"]),
        given["pairs"],
    )


def _trained(texts: Sequence[str]) -> dict[str, str]:
    """Arm → spec, of ARM=SPEC."""
    from evenhand.papers.rldf_arms import arm_name

    found: dict[str, str] = {}
    for text in texts:
        name, _, spec = text.partition("=")
        if (arm := arm_name(name)) in found or not spec:
            raise UsageError(f"--trained takes ARM=SPEC, each arm once, e.g. sft=hf/FOLDER, not {text!r}.")
        split_spec(spec)
        found[arm] = spec
    return found


def _judges(given: Mapping[str, Any]) -> list[str]:
    """The scorer that a judge is, of stored runs."""
    return [f"opinion:{given['judge']}"] if given["judge"] else []


def _models_for(run: PaperRun, runs: Sequence[PaperRun], models: Sequence[str]) -> list[str]:
    """The models without those of roles that only other runs have; a role that none has stays, to be refused."""
    if run.models:
        return list(run.models)
    elsewhere = {role for each in runs for role in _roles(each)} - _roles(run)
    return [text for text in models if roles_and_specs([text])[0][0] not in elsewhere]


def _roles(run: PaperRun) -> set[str]:
    return {role for method in run.methods for role in METHODS.get(method.partition(":")[0]).roles}


def _order(run: PaperRun, given: Mapping[str, Any], models: Sequence[str]) -> Order:
    """The run as if it had been asked for by `evenhand run`."""
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


def _check(orders: Sequence[Order]) -> None:
    """Refuse what would only be found out when the first run has been paid for."""
    for order in orders:
        plan = order.plan
        benchmark = load_benchmark(plan.benchmark, **plan.benchmark_options)
        check_plan(plan, benchmark)
        next(iter(benchmark.samples(Selection(1, plan.seeds[0]))), None)
        if not order.settings.resume and (order.out / FILE_NAME).exists():
            raise PlanError(f"{order.out} holds a run already; pass --resume to go on with it, or another --out.")


def _run(orders: Sequence[Order], folder: Path) -> bool:
    """Run one after another within one budget; says whether the budget stopped them."""
    left = orders[0].settings.budget
    for order in orders:
        progress = run_order(replace(order, settings=replace(order.settings, budget=left)), folder)
        if progress.stopped:
            return True
        left = left.less(progress.spent)
    return False


def _show(wanted: Paper, folder: Path, scorers: Sequence[str] = ()) -> None:
    """Page, CSV files and tables from the runs that are there."""
    from evenhand.papers.csv_files import write_csv_files
    from evenhand.papers.html import render_page
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

    from evenhand.papers.terminal import printed

    console = Console()
    for table in printed(page, console.width):
        console.print(table)
    for warning in page.warnings:
        console.print(f"! {warning}", markup=False, highlight=False)
