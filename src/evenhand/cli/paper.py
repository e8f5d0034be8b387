"""`evenhand papers`: run what a paper ran, and show its tables and figures beside the published numbers.

Every paper is a sub-command with the options that it takes.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from evenhand.cli.given_options import plan_options_without, skip_damaged_option, with_options
from evenhand.cli.groups import Command, Group
from evenhand.cli.output import current_output, output_options
from evenhand.cli.paper_options import CHOICES, COMMON
from evenhand.cli.progress import FAILED, STOPPED, exit_code, resumable, shown_workflow
from evenhand.cli.request import (
    RunRequest,
    check_prices,
    check_resume,
    default_out,
    read_models,
    read_out,
    read_settings,
    with_judge,
)
from evenhand.cli.run import print_forecast, usage_sentence
from evenhand.core import aio
from evenhand.core.errors import BudgetExhausted, UsageError
from evenhand.core.progress import Listener
from evenhand.core.specs import read_spec, roles_and_specs
from evenhand.core.types import Usage
from evenhand.papers.base import PAPERS, Paper, PaperOptions
from evenhand.papers.making import BOTH, PaperResult, make_paper, plan_paper, read_presets, write_page
from evenhand.runs.dry import Forecast, forecast
from evenhand.runs.execute import SeriesRun
from evenhand.runs.parts import Settings
from evenhand.runs.plan import Plan
from evenhand.runs.store import FILE_NAME

if TYPE_CHECKING:
    from evenhand.papers.rldf.plan import PlannedTraining

_NOT_PLAN = (
    "config",
    "benchmark",
    "settings",
    "methods",
    "data",
    "models",
    "seeds",
    "limit",
    "out",
    "scorers",
    "log_to",
)
"""Options of a plan that the paper decides, or that mean something narrower here."""
COMMAND_NAME = "command.json"
"""The file in the folder of a paper or suite that says how it was made, for `evenhand resume`."""
_SESSION = ("resume", "retry_failed", "skip_damaged", "dry_run", "out")
"""Options that are not kept there."""
_TRAINING = ("train", "ablate", "teachers", "generate", "train_seeds", "per_type", "settings")
"""Options of what is trained."""
_PLAN_FIELDS = ("orders", "reading", "temperature", "max_tokens", "judge_samples", "judge_pool", "templates")
"""Options that go into every plan as they are."""


class _PaperCommand(Command):
    """Says so where an option is another paper's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            elsewhere = click.Command(None, params=_params([each for many in CHOICES.values() for each in many]))
            if any(error.option_name in param.opts for param in elsewhere.params):
                raise UsageError(f"The paper {self.name} has no use for {error.option_name}; remove it.") from error
            raise


def _params(options: Sequence[Any]) -> list[click.Parameter]:
    def nothing() -> None: ...

    return click.command()(with_options(options)(nothing)).params


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
    """Make the tables and figures of a PAPER with your model, beside the published numbers.

    \b
    Examples:
      evenhand papers stardtox --model local/builtin --builtin --limit 1 --completions 2
      evenhand papers mabrf --model openai/NAME --judge openai/OTHER --search wikipedia --dry-run
      evenhand papers malibu --model openai/NAME --model openai/OTHER --limit 1 --dry-run
      evenhand papers rldf --model hf/PATH --judge openai/NAME --train --teacher openai/OTHER --out rldf
      evenhand papers rldf --help
    """


def _command(wanted: Paper) -> click.Command:
    """The command of a paper, with the options that it takes."""
    chosen = [option for choice, options in CHOICES.items() if choice in wanted.takes for option in options]

    @with_options((*COMMON, *chosen))
    @plan_options_without(*_NOT_PLAN, *(["judge_model"] if "judge" in wanted.takes else []))
    @skip_damaged_option
    @output_options
    def body(**given: Any) -> int:
        return make(wanted, given)

    contents = wanted.title.partition(": ")[2] or wanted.title
    return click.command(wanted.name, cls=_PaperCommand, help=_help(wanted), short_help=contents)(body)


def _help(wanted: Paper) -> str:
    name, models = wanted.name, " --model openai/OTHER" if "models" in wanted.takes else ""
    examples = [
        f"evenhand papers {name} --model local/builtin --builtin --limit 1",
        f"evenhand papers {name} --model openai/NAME{models} --dry-run",
        f"evenhand papers {name} --out runs/paper-{name}-1a2b3c4d",
    ]
    if "training" in wanted.takes:
        examples += [
            f"evenhand papers {name} --model hf/PATH --judge openai/NAME --trained rldf=hf/PPO --pairs PAIRS",
            f"evenhand papers {name} --model hf/PATH --judge openai/NAME --train --teacher openai/OTHER --out rldf",
            f"evenhand papers {name} --model hf/PATH --judge openai/NAME --ablate rounds=1,3,5 --bias age --out rldf",
        ]
    return (
        f"{wanted.title}, with your model{'s' if models else ''}, beside the published numbers.\n\n"
        "Its runs are ordinary run directories under --out. With --out alone, the page is made again from the runs "
        "there, without a call.\n\n\b\nExamples:\n" + "\n".join(f"  {each}" for each in examples)
    )


def make(wanted: Paper, given: Mapping[str, Any]) -> int:
    """Run what the paper needs and print its page; the exit code."""
    out, html = read_out(given["out"])
    if html is not None:
        raise UsageError(f"--out of a paper is a folder, for page, CSV files and runs, not {html}.")
    if not given["models"] and out is not None:
        _check_made_for(wanted.name, out)
        # The scorer that a judge is, of stored runs.
        judges = [f"opinion:{given['judge']}"] if given.get("judge") else given.get("scorers", ())
        _print(write_page(wanted, out, judges, skip_damaged=given.get("skip_damaged", False)))
        return 0
    options = read_options(given)
    if any(given.get(name) for name in _TRAINING):
        return _train(wanted.name, options, given)
    planned = plan_paper(wanted.name, options, out)
    models = with_judge(options.models, [run.plan for run in planned.runs])
    if models != list(options.models):
        planned = plan_paper(wanted.name, replace(options, models=models), out)
    check_prices(given, [model for run in planned.runs for model in run.plan.every_model()])
    if out is None:
        planned = replace(planned, folder=default_out(planned.folder))
    if given["dry_run"]:
        found = print_forecast(*_requests(planned.runs, planned.folder, given))
        known = {_key(run.plan): each for run, each in zip(planned.runs, found, strict=True)}
        _print_presets(wanted, replace(options, models=models), given, known)
        return 0
    settings = read_settings(given)
    with kept_command({"paper": wanted.name}, given, planned.folder) as listener:
        result = make_paper(planned, settings, listener)
    return _end(result, planned.folder, settings)


def _check_made_for(name: str, folder: Path) -> None:
    """Refuse a folder with the page of another paper, which would be overwritten."""
    file = folder / COMMAND_NAME
    try:
        made_for = str(orjson.loads(file.read_bytes()).get("paper", name)) if file.is_file() else name
    except (ValueError, AttributeError):
        return  # damaged: the runs say what can be shown
    if made_for != name:
        raise UsageError(f"{folder} holds the paper {made_for}; its page: evenhand papers {made_for} --out {folder}")


def _print_presets(
    wanted: Paper, options: PaperOptions, given: Mapping[str, Any], known: dict[bytes, list[Forecast]]
) -> None:
    """What each preset takes alone, where both are run; `known` are the forecasts that there are already."""
    if "presets" not in wanted.takes or "training" in wanted.takes or len(options.presets) < 2:
        return
    prices = read_settings(given).prices
    for preset in options.presets:
        runs = plan_paper(wanted.name, replace(options, presets=(preset,))).runs
        for run in runs:
            if _key(run.plan) not in known:
                known[_key(run.plan)] = aio.run(forecast(run.plan, prices))
        used = sum((arm.usage for run in runs for arm in known[_key(run.plan)]), Usage())
        click.echo(f"With --preset {preset} alone: {usage_sentence(used)}.")


def _key(plan: Plan) -> bytes:
    return orjson.dumps(plan.essence(), option=orjson.OPT_SORT_KEYS)


def _train(name: str, options: PaperOptions, given: Mapping[str, Any]) -> int:
    from evenhand.cli.train import stage_settings
    from evenhand.papers.rldf.ablation import read_values
    from evenhand.papers.rldf.plan import plan_training, train_paper

    planned = plan_training(
        name,
        options,
        given["out"],
        train=given["train"],
        ablate=read_values(given["ablate"]),
        teachers=given["teachers"],
        generate=given["generate"],
        seeds=_seeds(given["train_seeds"]),
        per_type=given["per_type"],
        stages=stage_settings(given["settings"]),
    )
    if given["dry_run"]:
        with planned.drafted(read_settings(given).prices) as (runs, topics):
            if topics.calls:
                click.echo(f"Topics first: {usage_sentence(topics)}; more where topics come twice.")
            print_forecast(*_requests(runs, planned.folder, given))
        _print_trainings(planned)
        return 0
    settings = read_settings(given)
    with kept_command({"paper": name}, given, planned.folder) as listener:
        try:
            result = train_paper(planned, settings, listener)
        except BudgetExhausted:
            return STOPPED
    return _end(result, planned.folder, settings)


@contextmanager
def kept_command(about: Mapping[str, str], given: Mapping[str, Any], folder: Path) -> Generator[Listener]:
    """A listener that shows everything, and keeps the command in the folder, so that it can be resumed."""
    if given["resume"]:
        check_resume(folder)
    command = {**about, "given": {key: value for key, value in given.items() if key not in _SESSION}}
    file = folder / COMMAND_NAME

    def keep() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_bytes(orjson.dumps(command, default=str, option=orjson.OPT_INDENT_2))

    def keep_first() -> None:
        if not file.exists():
            keep()

    try:
        with resumable(folder), shown_workflow(folder, read_settings(given).budget, keep_first) as listener:
            yield listener
        keep()
    finally:
        if file.exists() and next(folder.rglob(FILE_NAME), None) is None:
            file.unlink()
            with suppress(OSError):
                folder.rmdir()


def _end(result: PaperResult, folder: Path, settings: Settings) -> int:
    """The tables and where the page is, unless nothing was measured; the exit code."""
    code = exit_code([path.parent for path in folder.rglob(FILE_NAME)], settings, stopped=result.stopped)
    if code == FAILED and result.nothing_measured:
        click.echo(f"{result.page.warnings[0]} Page: {result.html}")
    else:
        _print(result)
    current_output().report = result.html
    return code


def read_options(given: Mapping[str, Any]) -> PaperOptions:
    """The options of any paper's command."""
    named = any(role == "base" for role, _ in roles_and_specs(given["models"]))
    return PaperOptions(
        models=read_models(given) if named else (),
        limit=given["limit"],
        builtin=given["builtin"],
        data=given["data"],
        seed=given["seed"],
        fields={name: given[name] for name in _PLAN_FIELDS if given[name] is not None},
        scorers=given.get("scorers", ()),
        completions=given.get("completions"),
        search=given.get("search"),
        accept=given.get("accept"),
        look=given.get("look", False),
        domain=given.get("domain", False),
        judge=given.get("judge"),
        compared=given.get("compared"),
        trained=_trained(given.get("trained", ())),
        pairs=given.get("pairs"),
        presets=read_presets(given.get("preset", BOTH)),
        methods=dict(map(read_spec, given.get("methods", ()))),
        steer=given.get("steer"),
        quality=given.get("quality"),
        base_models=tuple(given.get("base_models", ())),
        bias=tuple(dict.fromkeys(name.strip() for name in (given.get("bias") or "").split(",") if name.strip())),
    )


def _seeds(text: str | None) -> list[int]:
    """The training seeds of a list with commas."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--train-seeds takes whole numbers with commas, e.g. 1,2,3, not {text!r}.")
    return [int(part) for part in parts]


def _trained(texts: Sequence[str]) -> dict[str, str]:
    """Arm → spec, of ARM=SPEC."""
    found: dict[str, str] = {}
    for text in texts:
        arm, _, spec = text.partition("=")
        if arm in found or not spec:
            raise UsageError(f"--trained takes ARM=SPEC, each arm once, e.g. sft=hf/FOLDER, not {text!r}.")
        found[arm] = spec
    return found


def _requests(runs: Sequence[SeriesRun], folder: Path, given: Mapping[str, Any]) -> list[RunRequest]:
    settings = read_settings(given)
    return [RunRequest(run.plan, settings, folder / run.folder, dry_run=True) for run in runs]


def _print_trainings(planned: PlannedTraining) -> None:
    """What a dry run says of what cannot be counted in calls."""
    for warning in planned.warnings:
        click.echo(warning, err=True)
    many, model = len(planned.every), planned.making.model
    click.echo(f"Then {many} trainings of {model} (sft, reward and ppo each), on the pairs of the debates:")
    for each in planned.every:
        plan = each.debates.plan
        options = {**plan.methods[0].options, **plan.benchmark_options}
        listed = ", ".join(f"{name}={value}" for name, value in options.items())
        part = "" if each.part is None else f", {'at most ' if each.at_most else ''}{each.part:,} pairs"
        click.echo(f"  {planned.folder / each.models}: {plan.methods[0].name}, {listed}{part}")


def _print(result: PaperResult) -> None:
    """The tables, the warnings and where the page is."""
    from rich.console import Console

    from evenhand.papers.page import printed
    from evenhand.show.terminal import print_table

    console = Console()
    for table in printed(result.page):
        print_table(console, table)
    for warning in result.page.warnings:
        console.print(f"! {warning}", markup=False, highlight=False)
    click.echo(f"Page: {result.html}; numbers: {', '.join(path.name for path in result.csv)}")
