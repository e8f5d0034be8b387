"""`evenhand scorers`: what there is to score with."""

from __future__ import annotations

import click

from evenhand.scorers.base import SCORERS, Scorer

_AFTER = {"nothing": "", "variant": "[:NAME]", "model": ":MODEL"}
_MOST = 7


@click.command()
def scorers() -> None:
    """List the scorers: what they give, for which languages, and whether they can be used here.

    A scorer is named NAME, or NAME:ARGUMENT where the list shows a colon; what stands in brackets may be left out.

    \b
    Examples:
      evenhand score comments.txt --scorer builtin
      evenhand score comments.txt --scorer detoxify:original
      evenhand score comments.txt --scorer judge:openai/gpt-4o-mini
    """
    rows = [(name, SCORERS.get(name)) for name in SCORERS.names()]
    width = max(len(_shown(name, scorer)) for name, scorer in rows) + 1
    for name, scorer in rows:
        summary = (scorer.__doc__ or "").strip().partition("\n")[0]
        click.echo(f"{_shown(name, scorer):<{width}} {scorer.unavailable() or 'ready'}")
        click.echo(f"{'':<{width}} {summary}")
        click.echo(f"{'':<{width}} gives {_attributes(scorer)}; made for {', '.join(scorer.languages)}")
    click.echo("\nScores of different scorers measure different things; never compare them.")


def _shown(name: str, scorer: type[Scorer]) -> str:
    return name + _AFTER[scorer.takes]


def _attributes(scorer: type[Scorer]) -> str:
    names = getattr(scorer, "attributes", ())
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return (", ".join(names[:_MOST]) or "its own attributes") + more
