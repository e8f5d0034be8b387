"""`evenhand data search`: try a search provider out, or record what it finds."""

from __future__ import annotations

from pathlib import Path

import click
import orjson

from evenhand.cli.groups import Command
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.search.base import SEARCHES, SearchProvider, SearchResult, load_provider
from evenhand.search.replay import read_replay, record, result_row

_AFTER = {"nothing": "", "argument": "[:ARGUMENT]", "needed": ":ARGUMENT"}
_SHOWN = 400
"""Characters of a snippet."""


@click.command(cls=Command)
@click.argument("query", required=False)
@click.option(
    "--provider", "-p", "spec", metavar="SPEC", default="corpus:builtin", show_default=True,
    help="NAME or NAME:ARGUMENT, see evenhand data search --list.",
)  # fmt: skip
@click.option("--limit", "-n", type=click.IntRange(1, 50), default=5, show_default=True, help="Results at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the texts where they are known.")
@click.option(
    "--record", "to", metavar="FILE", type=click.Path(path_type=Path), help="Add what is found to a replay file."
)
@click.option("--list", "listed", is_flag=True, help="List the providers, and which can be used here.")
def search(query: str | None, spec: str, limit: int, as_json: bool, to: Path | None, listed: bool) -> None:
    """Search for QUERY as a method would, and print title, address and snippet.

    \b
    Examples:
      evenhand data search --list
      evenhand data search "older drivers accidents"                        the built-in corpus, offline
      evenhand data search "older drivers accidents" -p wikipedia
      evenhand data search "older drivers accidents" -p corpus:FOLDER --json
      evenhand data search "older drivers accidents" -p ddgs --record found.jsonl
      evenhand data search "older drivers accidents" -p replay:found.jsonl

    No web page is opened here: of a web search you see, and record, the engine's snippets.
    """
    if listed:
        _list()
        return
    if not (query and query.strip()):
        raise UsageError('Say what to search for: evenhand data search "QUERY", or see evenhand data search --list.')
    query = query.encode("utf-8", "replace").decode()  # a terminal may pass bytes that are no text
    _check_record(to)
    found = aio.run(_find(load_provider(spec), query, limit))
    if to is not None:
        record(to, found)
    if as_json:
        click.echo(orjson.dumps(result_row(found), option=orjson.OPT_INDENT_2))
    else:
        _show(found)
        if to is not None:
            click.echo(f"Recorded in {to}; --provider replay:{to} finds it again.")


def _check_record(to: Path | None) -> None:
    """Refuse a file that is none of ours before anything is searched for."""
    if to is None:
        return
    if to.suffix.lower() != ".jsonl":
        raise UsageError(f"--record {to} should end in .jsonl.")
    if to.exists():
        read_replay(to)


async def _find(provider: SearchProvider, query: str, limit: int) -> SearchResult:
    try:
        return await provider.search(query, limit)
    finally:
        await provider.aclose()


def _list() -> None:
    rows = [(name, SEARCHES.get(name)) for name in SEARCHES.names()]
    width = max(len(name + _AFTER[provider.takes]) for name, provider in rows) + 1
    for name, provider in rows:
        summary = (provider.__doc__ or "").strip().partition("\n")[0]
        click.echo(f"{name + _AFTER[provider.takes]:<{width}} {provider.unavailable() or 'ready'}")
        click.echo(f"{'':<{width}} {summary}")


def _show(found: SearchResult) -> None:
    for number, hit in enumerate(found.hits, 1):
        click.echo(f"{number}. {_printable(hit.title) or '(no title)'}")
        click.echo(f"   {_printable(hit.url)}")
        if snippet := _printable(hit.snippet or hit.text):
            click.echo(f"   {snippet[:_SHOWN]}{'…' if len(snippet) > _SHOWN else ''}")
    click.echo(f"{len(found.hits)} results of {_printable(found.provider)}, {found.time}")


def _printable(text: str) -> str:
    """One line without terminal control sequences: these are texts of strangers."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())
