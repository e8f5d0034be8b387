"""`evenhand list benchmarks`: what there is to measure on."""

from __future__ import annotations

from inspect import getdoc

import click

from evenhand.benchmarks.base import BENCHMARKS, Benchmark
from evenhand.cli.groups import Command
from evenhand.cli.option_table import print_options


@click.command(cls=Command)
@click.argument("name", required=False)
@click.option("--lm-eval", is_flag=True, help="Print the folder of task files for lm-evaluation-harness.")
def benchmarks(name: str | None, lm_eval: bool) -> None:
    """List the benchmarks, or show NAME with its options.

    \b
    Examples:
      evenhand list benchmarks
      evenhand list benchmarks bbq
      lm_eval --include_path "$(evenhand list benchmarks --lm-eval)" --tasks evenhand_bbq …
    """
    if lm_eval:
        from evenhand.integrations.lm_eval import TASKS

        click.echo(TASKS)
        return
    if name is not None:
        benchmark = BENCHMARKS.get(name)
        click.echo(f"{name}: {getdoc(benchmark)}\n\n{_about(benchmark)}")
        print_options(benchmark.Options, "--set KEY=VALUE")
        return
    names = BENCHMARKS.names()
    width = max(map(len, names))
    for each in names:
        benchmark = BENCHMARKS.get(each)
        summary = (benchmark.__doc__ or "").strip().partition("\n")[0]
        click.echo(f"{each:<{width}} {summary}")
        click.echo(f"{'':<{width}} {_about(benchmark)}")
        options = [option for option in benchmark.Options.model_fields if option != "data"]
        if options:
            click.echo(f"{'':<{width}} options: {', '.join(options)}  (--set KEY=VALUE)")


def _about(benchmark: type[Benchmark]) -> str:
    return f"{benchmark.kind} samples; headline {benchmark.headline}"
