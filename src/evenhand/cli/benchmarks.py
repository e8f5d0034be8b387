"""`evenhand benchmarks`: what there is to measure on."""

from __future__ import annotations

import inspect

import click

from evenhand.benchmarks.base import BENCHMARKS


@click.command()
def benchmarks() -> None:
    """List the benchmarks and their options."""
    names = BENCHMARKS.names()
    width = max(map(len, names))
    for name in names:
        benchmark = BENCHMARKS.get(name)
        summary = (benchmark.__doc__ or "").strip().partition("\n")[0]
        click.echo(f"{name:<{width}} {summary}")
        click.echo(f"{'':<{width}} {benchmark.kind} samples; headline {benchmark.headline}")
        options = [each for each in inspect.signature(benchmark).parameters if each != "data"]
        if options:
            click.echo(f"{'':<{width}} options: {', '.join(options)}  (--set KEY=VALUE)")
