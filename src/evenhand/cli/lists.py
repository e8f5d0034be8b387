"""`evenhand list`: what there is to choose from."""

from __future__ import annotations

import click

from evenhand.cli.groups import Group


@click.group(
    cls=Group,
    lazy={
        "methods": ("evenhand.cli.methods:methods", "List the methods and their options."),
        "benchmarks": ("evenhand.cli.benchmarks:benchmarks", "List the benchmarks and their options."),
        "scorers": ("evenhand.cli.scorers:scorers", "List the scorers, and which can be used here."),
    },
)
def lists() -> None:
    """List what there is to choose from, or show one with its options.

    \b
    Examples:
      evenhand list methods
      evenhand list benchmarks bbq
    """
