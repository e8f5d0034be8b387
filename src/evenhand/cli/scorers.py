"""`evenhand list scorers`: what there is to score with."""

from __future__ import annotations

from inspect import getdoc

import click

from evenhand.cli.groups import Command
from evenhand.cli.option_table import print_options
from evenhand.scorers.base import SCORERS, Scorer

_MOST = 7


@click.command(cls=Command)
@click.argument("name", required=False)
def scorers(name: str | None) -> None:
    """List the scorers, or show NAME with its options: what they give, for which languages, and if they work here.

    A scorer is named NAME, or NAME:ARGUMENT where the list shows a colon; what stands in brackets may be left out.

    \b
    Examples:
      evenhand list scorers detoxify
      evenhand score comments.txt --scorer builtin
      evenhand score comments.txt --scorer detoxify:original
      evenhand score comments.txt --scorer judge:openai/gpt-4o-mini
    """
    if name is not None:
        scorer = SCORERS.get(name)
        click.echo(f"{_shown(name, scorer)}: {getdoc(scorer)}\n\n{_about(scorer)}")
        print_options(scorer.Options, f"{name}:KEY=VALUE,…; the first may stand without its name")
        return
    rows = [(each, SCORERS.get(each)) for each in SCORERS.names()]
    width = max(len(_shown(each, scorer)) for each, scorer in rows) + 1
    for each, scorer in rows:
        summary = (scorer.__doc__ or "").strip().partition("\n")[0]
        click.echo(f"{_shown(each, scorer):<{width}} {scorer.unavailable() or 'ready'}")
        click.echo(f"{'':<{width}} {summary}")
        click.echo(f"{'':<{width}} {_about(scorer)}")
    click.echo("\nScores of different scorers measure different things; never compare them.")


def _shown(name: str, scorer: type[Scorer]) -> str:
    first = next(iter(scorer.Options.table()), None)
    if first is None:
        return name
    return f"{name}:{first.name.upper()}" if first.required else f"{name}[:{first.name.upper()}]"


def _about(scorer: type[Scorer]) -> str:
    return f"gives {_attributes(scorer)}; made for {', '.join(scorer.languages)}"


def _attributes(scorer: type[Scorer]) -> str:
    names = getattr(scorer, "attributes", ())
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return (", ".join(names[:_MOST]) or "its own attributes") + more
