"""`evenhand list`: what there is to choose from."""

from __future__ import annotations

from inspect import getdoc
from pathlib import Path
from typing import Any

import click

from evenhand.benchmarks.base import BENCHMARKS, Benchmark
from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.core.errors import UsageError
from evenhand.core.format import doc_line
from evenhand.core.options import DEFAULT_PRESET, PRESET, Option, Options, Request, argument, option
from evenhand.core.prompts import copy_prompts
from evenhand.methods.base import METHODS, Method, prompts_of
from evenhand.scorers.base import SCORERS, Scorer, load_scorer


def in_short(options: type[Options]) -> str:
    """The options with their defaults, on one line."""
    return ", ".join(each.name if _is_open(each) else f"{each.name}={shown(each.default)}" for each in options.table())


def print_options(options: type[Options], how: str) -> None:
    """Every option with its type, bounds, default and help; `how` says how options are given."""
    table = options.table()
    if not table:
        click.echo("\nIt takes no options.")
        return
    click.echo(f"\nOptions ({how}):")
    for each in table:
        click.echo(f"  {each.name}: {each.kind}, {_default(each)}")
        if each.help:
            click.echo(f"      {each.help}")
    if options.presets:
        click.echo(f"  {PRESET}: {' or '.join((DEFAULT_PRESET, *options.presets))}, default {DEFAULT_PRESET}")
        click.echo("      A set of values; options that are given override it.")
        for name in options.presets:
            other = {each.name: each.presets[name] for each in table if name in each.presets}
            values = ", ".join(f"{key}={shown(value)}" for key, value in other.items())
            click.echo(f"      {name}: {values or f'the same values as {DEFAULT_PRESET} today'}")


def _default(option: Option) -> str:
    if option.required:
        return "needed"
    return "optional" if _is_open(option) else f"default {shown(option.default)}"


def _is_open(option: Option) -> bool:
    return option.required or option.default in (None, "", ())


def shown(value: Any) -> str:
    """A value as it would be written on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return "+".join(value) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


class MethodsCommand(Request):
    name: str | None = argument("Show only this one, with its options.", default=None)
    prompts: Path | None = option(
        None, "Write the prompt files of NAME to DIR, to be changed and used with --templates DIR.", metavar="DIR"
    )


@command(MethodsCommand)
def methods(request: MethodsCommand) -> None:
    """List the methods, or show NAME with its options and prompts.

    \b
    Examples:
      evenhand list methods
      evenhand list methods stardtox
      evenhand list methods stardtox --prompts my_prompts
    """
    if request.prompts is not None:
        if request.name is None:
            raise UsageError("Name the method whose prompts to write, e.g. evenhand list methods cot --prompts DIR.")
        ids = prompts_of(METHODS.get(request.name))
        if not ids:
            raise UsageError(f"The method {request.name} has no prompts of this package.")
        for path in copy_prompts(ids, request.prompts):
            click.echo(path)
        click.echo(f"Keep the files that you change, remove the others, and pass --templates {request.prompts}")
        return
    if request.name is not None:
        method = METHODS.get(request.name)
        click.echo(f"{request.name}: {method.summary}\n\n{_about_method(method)}")
        print_options(method.options, f"--method {request.name}:KEY=VALUE,…")
        if ids := prompts_of(method):
            click.echo("\nPrompts (--templates DIR overrides them with DIR/ID.md):")
            for each in ids:
                click.echo(f"  {each}")
        return
    width = max(map(len, METHODS.names()))
    for each in METHODS.names():
        method = METHODS.get(each)
        click.echo(f"{each:<{width}} {method.summary}")
        click.echo(f"{'':<{width}} {_about_method(method)}")
        if options := in_short(method.options):
            click.echo(f"{'':<{width}} options: {options}  (--method {each}:KEY=VALUE)")


def _about_method(method: Method) -> str:
    needs = f"; needs {', '.join(sorted(method.needs))} (hf/ models)" if method.needs else ""
    return f"serves {', '.join(sorted(method.kinds))}; models: {', '.join(method.roles)}{needs}"


class BenchmarksCommand(Request):
    name: str | None = argument("Show only this one, with its options.", default=None)
    lm_eval: bool = option(False, "Print the folder of task files for lm-evaluation-harness.")


@command(BenchmarksCommand)
def benchmarks(request: BenchmarksCommand) -> None:
    """List the benchmarks, or show NAME with its options.

    \b
    Examples:
      evenhand list benchmarks
      evenhand list benchmarks bbq
      lm_eval --include_path "$(evenhand list benchmarks --lm-eval)" --tasks evenhand_bbq …
    """
    if request.lm_eval:
        from evenhand.integrations.lm_eval import TASKS

        click.echo(TASKS)
        return
    if request.name is not None:
        benchmark = BENCHMARKS.get(request.name)
        click.echo(f"{request.name}: {getdoc(benchmark)}\n\n{_about_benchmark(benchmark)}")
        print_options(benchmark.Options, "--set KEY=VALUE")
        return
    names = BENCHMARKS.names()
    width = max(map(len, names))
    for each in names:
        benchmark = BENCHMARKS.get(each)
        click.echo(f"{each:<{width}} {doc_line(benchmark)}")
        click.echo(f"{'':<{width}} {_about_benchmark(benchmark)}")
        options = [option for option in benchmark.Options.model_fields if option != "data"]
        if options:
            click.echo(f"{'':<{width}} options: {', '.join(options)}  (--set KEY=VALUE)")


def _about_benchmark(benchmark: type[Benchmark]) -> str:
    return f"{benchmark.kind} samples; headline {benchmark.headline}"


_MOST = 8


class ScorersCommand(Request):
    name: str | None = argument("Show only this one, with its options.", default=None)


@command(ScorersCommand)
def scorers(request: ScorersCommand) -> None:
    """List the scorers, or show NAME with its options: what they score, in which languages, and whether they work here.

    A scorer is named NAME, or NAME:ARGUMENT where the list shows a colon; the part in brackets is optional.

    \b
    Examples:
      evenhand list scorers detoxify
      evenhand score comments.txt --scorer builtin
      evenhand score comments.txt --scorer detoxify:original
      evenhand score comments.txt --scorer judge:openai/gpt-4o-mini
    """
    if request.name is not None:
        scorer = SCORERS.get(request.name)
        click.echo(f"{_form(request.name, scorer)}: {getdoc(scorer)}\n\n{_about_scorer(scorer)}")
        print_options(scorer.Options, f"{request.name}:KEY=VALUE,…; the first may stand without its name")
        _show_limits(request.name, scorer)
        return
    rows = [(each, SCORERS.get(each)) for each in SCORERS.names()]
    width = max(len(_form(each, scorer)) for each, scorer in rows) + 1
    for each, scorer in rows:
        click.echo(f"{_form(each, scorer):<{width}} {scorer.unavailable() or 'ready'}")
        click.echo(f"{'':<{width}} {doc_line(scorer)}")
        click.echo(f"{'':<{width}} {_about_scorer(scorer)}")
    click.echo("\nScores of different scorers measure different things; never compare them.")


def _show_limits(name: str, scorer: type[Scorer]) -> None:
    """Print why the scorer does not work here, or from which scores on how many harmless texts would be flagged."""
    if reason := scorer.unavailable():
        click.echo(f"\n{reason}")
        return
    if scorer.asks_model or scorer.Options.model_fields:
        return
    if (loaded := load_scorer(name)).limits:
        click.echo(f"\n{loaded.id}, share of harmless texts at or above a score:")
        for attribute, stated in loaded.limits.items():
            shares = ", ".join(f"{percent} % from {value:.2f}" for percent, value in sorted(stated.items()))
            click.echo(f"  {attribute:<16} {shares}")


def _form(name: str, scorer: type[Scorer]) -> str:
    first = next(iter(scorer.Options.table()), None)
    if first is None:
        return name
    return f"{name}:{first.name.upper()}" if first.required else f"{name}[:{first.name.upper()}]"


def _about_scorer(scorer: type[Scorer]) -> str:
    made_for = ", ".join(scorer.languages) or "the languages of its model"
    return f"gives {_attributes(scorer)}; made for {made_for}"


def _attributes(scorer: type[Scorer]) -> str:
    names = getattr(scorer, "attributes", ())
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return (", ".join(names[:_MOST]) or "its own attributes") + more


@click.group("list", cls=Group)
def lists() -> None:
    """List methods, benchmarks or scorers, or show one with its options.

    \b
    Examples:
      evenhand list methods
      evenhand list benchmarks bbq
    """


for each in (methods, benchmarks, scorers):
    lists.add_command(each)
