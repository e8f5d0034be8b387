"""`evenhand papers`: run what a paper ran, and show its tables and figures beside the published numbers.

Every paper is a sub-command with the options that it declares.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import new_class
from typing import Any, ClassVar, cast

import click
import orjson

from evenhand.cli.groups import Command, Group
from evenhand.cli.options import declared
from evenhand.cli.output import OutputFields, current_output
from evenhand.cli.progress import FAILED, STOPPED, exit_code
from evenhand.cli.request import DryRunOption, MaxFailedOption, SkipDamagedOption, tell
from evenhand.cli.resume import COMMAND_NAME, kept_command
from evenhand.cli.run import print_forecast, usage_sentence
from evenhand.core import aio
from evenhand.core.config import read_config
from evenhand.core.errors import BudgetExhausted, UsageError
from evenhand.core.types import Usage
from evenhand.papers.base import PAPERS, Paper, PaperOptions, PlannedPaper, PresetField
from evenhand.papers.making import PaperResult, PlannedRuns, is_of_another, plan_paper, write_page
from evenhand.runs.dry import Drawn, Forecast, forecast
from evenhand.runs.parts import Settings, paid_prices
from evenhand.runs.plan import Plan
from evenhand.runs.request import PlannedRun, default_out, read_out, with_judge
from evenhand.runs.store import FILE_NAME

GROUP = "papers"
"""The word before the name of a paper."""


class PaperCommand(PaperOptions, DryRunOption, MaxFailedOption, SkipDamagedOption, OutputFields):
    """What the command of every paper takes; each has its own options besides."""

    paper: ClassVar[Paper[Any]]


class _PaperCommand(Command):
    """Says so where an option is another paper's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if is_of_another(PAPERS.get(self.name or ""), error.option_name):
                raise UsageError(f"The paper {self.name} has no use for {error.option_name}; remove it.") from error
            raise


class _Papers(Group):
    """The papers of the registry, each as a command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return PAPERS.names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        del ctx
        return _command(PAPERS.get(cmd_name))


@click.group(cls=_Papers, subcommand_metavar="PAPER [OPTIONS]")
def paper() -> None:
    """Reproduce the tables and figures of a PAPER with your model, next to the published numbers.

    \b
    Examples:
      evenhand papers PAPER --help
      evenhand papers PAPER --model local/builtin --builtin --limit 1
      evenhand papers PAPER --model openai/NAME --judge openai/OTHER --dry-run
    """


def _command(wanted: Paper[Any]) -> click.Command:
    own = {"command": f"{GROUP} {wanted.name}", "paper": wanted, "__module__": __name__, "__doc__": wanted.title}
    made: Any = new_class(
        f"{wanted.name}Command", (wanted.Options, PaperCommand), exec_body=lambda body: body.update(own)
    )
    contents = wanted.title.partition(": ")[2] or wanted.title
    named = click.command(wanted.name, cls=_PaperCommand, help=_help(wanted), short_help=contents)
    return named(declared(cast("type[PaperCommand]", made))(make))


def _help(wanted: Paper[Any]) -> str:
    several = wanted.Options.several_models
    examples = (
        "--model local/builtin --builtin --limit 1",
        f"--model openai/NAME{' --model openai/OTHER' if several else ''} --dry-run",
        f"--out runs/paper-{wanted.name}-1a2b3c4d",
        *wanted.examples,
    )
    return (
        f"{wanted.title}, with your model{'s' if several else ''}, beside the published numbers.\n\n"
        "Its runs are ordinary run directories under --out. With --out alone, the page is made again from the runs "
        "there, without a call.\n\n\b\nExamples:\n"
        + "\n".join(f"  evenhand {GROUP} {wanted.name} {each}" for each in examples)
    )


def make(request: PaperCommand) -> int:
    """Run what the paper needs and print its page; the exit code."""
    wanted = request.paper
    out, html = read_out(request.out)
    if html is not None:
        raise UsageError(f"--out of a paper is a folder, for page, CSV files and runs, not {html}.")
    if not request.models and out is not None:
        _check_made_for(wanted.name, out)
        _print(write_page(wanted, out, request.scorers_of_page, skip_damaged=request.skip_damaged))
        return 0
    config = read_config()
    options = request.changed(**request.configured(config))
    planned = plan_paper(wanted.name, options, out, priced=request.dry_run)
    if isinstance(planned, PlannedRuns):
        models = with_judge(options.assigned, [run.plan for run in planned.runs], config, tell)
        if models != options.assigned:
            options = options.changed(models=tuple(models))
            planned = plan_paper(wanted.name, options, out, priced=request.dry_run)
    if isinstance(planned, PlannedRuns):
        request.check_prices([model for run in planned.runs for model in run.plan.every_model()])
        if out is None:
            planned = replace(planned, folder=default_out(planned.folder, config))
    settings = request.settings_for(config)
    if request.dry_run:
        _print_forecast(planned, options, settings)
        return 0
    with kept_command(request, planned.folder, settings.budget) as listener:
        try:
            result = planned.make(settings, listener)
        except BudgetExhausted:
            return STOPPED
    return _end(result, planned.folder, settings)


def _check_made_for(name: str, folder: Path) -> None:
    """Refuse a folder with the page of another paper, which would be overwritten."""
    file = folder / COMMAND_NAME
    try:
        stored: dict[str, Any] = orjson.loads(file.read_bytes()) if file.is_file() else {}
        made_for = str(stored.get("paper") or stored.get("command", f"{GROUP} {name}")).removeprefix(f"{GROUP} ")
    except (ValueError, AttributeError):
        return  # damaged: the runs say what can be shown
    if made_for != name:
        raise UsageError(f"{folder} holds the paper {made_for}; its page: evenhand papers {made_for} --out {folder}")


def _print_forecast(planned: PlannedPaper, options: PaperOptions, settings: Settings) -> None:
    """What the runs would take, what comes before and after them, and what each preset takes alone."""
    drawn: Drawn = {}
    with planned.forecast(settings.prices) as (runs, before):
        if before.calls:
            click.echo(planned.preparation.format(usage=usage_sentence(before)))
        each = (PlannedRun(run.plan, settings, planned.folder / run.folder) for run in runs)
        found = print_forecast(*each, made=planned.folder, drawn=drawn)
    for warning in planned.warnings:
        click.echo(warning, err=True)
    for note in planned.notes:
        click.echo(note)
    if isinstance(planned, PlannedRuns) and isinstance(options, PresetField):
        whole = [_key(run.plan) for run in runs]
        known = dict(zip(whole, found, strict=True))
        for preset in options.chosen_presets:
            alone = options.changed(preset=preset)
            if [_key(run.plan) for run in planned.paper.runs(alone)] != whole:
                _print_preset(planned.paper, alone, settings, known, drawn)


def _print_preset(
    wanted: Paper[Any], options: PaperOptions, settings: Settings, known: dict[bytes, list[Forecast]], drawn: Drawn
) -> None:
    """What a preset takes alone; `known` are the forecasts that there are already."""
    runs = wanted.runs(options)
    for run in runs:
        if _key(run.plan) not in known:
            prices = paid_prices(run.plan.every_model(), settings)
            known[_key(run.plan)] = aio.run(forecast(run.plan, prices, drawn=drawn))
    arms = [arm for run in runs for arm in known[_key(run.plan)]]
    said = usage_sentence(sum((arm.usage for arm in arms), Usage()), sum(arm.least_calls for arm in arms))
    click.echo(f"With --preset {cast('PresetField', options).preset} alone: {said}.")


def _key(plan: Plan) -> bytes:
    return orjson.dumps(plan.essence(), option=orjson.OPT_SORT_KEYS)


def _end(result: PaperResult, folder: Path, settings: Settings) -> int:
    """The tables and where the page is, unless nothing was measured; the exit code."""
    code = exit_code([path.parent for path in folder.rglob(FILE_NAME)], settings, stopped=result.stopped)
    if code == FAILED and result.nothing_measured:
        click.echo(f"{result.page.warnings[0]} Page: {result.html}")
    else:
        _print(result)
    current_output().report = result.html
    return code


def _print(result: PaperResult) -> None:
    """The tables, the warnings and where the page is."""
    from rich.console import Console

    from evenhand.papers.page import printed
    from evenhand.show.terminal import print_table

    console = Console()
    for table in printed(result.page):
        print_table(table)
    for warning in result.page.warnings:
        console.print(f"! {warning}", markup=False, highlight=False)
    click.echo(f"Page: {result.html}; numbers: {', '.join(path.name for path in result.csv)}")
