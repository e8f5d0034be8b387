"""`evenhand score`: the texts of a file through one scorer or several."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from pathlib import Path

import click
from rich.console import Console

from evenhand import aio
from evenhand.cli.progress import shown_count
from evenhand.cli.scores import Result, Tally, Write, csv_writer, jsonl_writer
from evenhand.cli.texts import Row, TextFile
from evenhand.errors import UsageError
from evenhand.scorers.base import Scorer, load_scorer
from evenhand.scorers.pool import PooledScorer

_PREVIEW = 10
_SMALLEST, _LARGEST = 64, 1024
"""Texts in a batch; it grows while a batch takes less than a second."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--scorer", "-s", "specs", multiple=True, metavar="SPEC", default=("builtin",), show_default=True,
    help="NAME or NAME:ARGUMENT, see evenhand scorers; repeat to compare.",
)  # fmt: skip
@click.option("--field", metavar="NAME", help="The field or column that holds the text (default text).")
@click.option("--context", metavar="NAME", help="The field with what the text continues, for the scorer quality.")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="A .csv or .jsonl file for all rows.")
def score(file: Path, specs: tuple[str, ...], field: str | None, context: str | None, out: Path | None) -> None:
    """Score the texts in FILE: .txt (a text per line), .jsonl or .csv.

    \b
    Examples:
      evenhand score comments.txt                            look at the first rows and the means
      evenhand score replies.jsonl --field reply -o scored.csv
      evenhand score replies.jsonl -s builtin -s builtin_b   how far do two scorers agree?
      evenhand score replies.csv -s judge:openai/gpt-4o-mini -o scored.jsonl
      evenhand score comments.txt > scored.csv               CSV wherever there is no terminal

    Every row keeps its own fields and gets SPEC.attribute for each score. A text that cannot be scored has empty
    cells and the reason in SPEC.unscored; it is never a zero. Equal texts are scored once. Scores of different
    scorers measure different things: look at how they agree, never mix them.
    """
    source = TextFile(file, field, context)
    total, fields = source.survey()
    _check_out(out, file)
    scorers = _load(specs)
    on_terminal = out is None and stdout_is_terminal()
    tally = Tally(scorers, preview=_PREVIEW if on_terminal else 0)
    with _opened(out, on_terminal, fields, scorers, tally) as write, shown_count(total) as progress:
        aio.run(_score_all(source, scorers, write, progress))
    if out is not None:
        click.echo(f"{out}: {tally.rows:,} rows")
    # Where the rows go to standard output, what is said about them must not.
    shown = sys.stdout if out is not None or on_terminal else sys.stderr
    tally.show(Console(file=shown, width=None if shown.isatty() else 120))


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()


def _check_out(out: Path | None, file: Path) -> None:
    if out is None:
        return
    if out.suffix.lower() not in (".csv", ".jsonl"):
        raise UsageError(f"--out {out} should end in .csv or .jsonl.")
    if out.exists() and out.samefile(file):
        raise UsageError("--out is the file that is read; give it another name.")


def _load(specs: Sequence[str]) -> list[Scorer]:
    scorers = [PooledScorer(load_scorer(spec)) for spec in specs]
    names = [scorer.spec for scorer in scorers]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"The scorer {name} is given twice.")
    return list(scorers)


@contextlib.contextmanager
def _opened(
    out: Path | None, on_terminal: bool, fields: Sequence[str], scorers: Sequence[Scorer], tally: Tally
) -> Generator[Write]:
    """Where rows go; a file gets its name when it is whole, until then it ends in .part."""
    if on_terminal:
        yield tally.add
        return
    if out is None:
        yield _both(csv_writer(sys.stdout, fields, scorers), tally.add)
        return
    part = out.with_name(out.name + ".part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            is_csv = out.suffix.lower() == ".csv"
            yield _both(csv_writer(file, fields, scorers) if is_csv else jsonl_writer(file, scorers), tally.add)
    except BaseException:
        if tally.rows:
            click.echo(f"evenhand: {tally.rows:,} rows were finished and are in {part}.", err=True)
        else:
            part.unlink(missing_ok=True)
        raise
    part.replace(out)


def _both(first: Write, second: Write) -> Write:
    def write(row: Row, results: Sequence[Result]) -> None:
        first(row, results)
        second(row, results)

    return write


async def _score_all(
    source: TextFile, scorers: Sequence[Scorer], write: Write, progress: Callable[[int], None]
) -> None:
    rows = source.rows()
    size, done = _SMALLEST, 0
    async with contextlib.AsyncExitStack() as stack:
        for scorer in scorers:
            await stack.enter_async_context(scorer)
        while batch := list(islice(rows, size)):
            started = time.monotonic()
            texts = [row.text for row in batch]
            contexts = [row.context for row in batch] if source.context else None
            columns = await aio.all_of(scorer.score(texts, contexts) for scorer in scorers)
            for row, results in zip(batch, zip(*columns, strict=True), strict=True):
                write(row, results)
            done += len(batch)
            progress(done)
            if time.monotonic() - started < 1:
                size = min(2 * size, _LARGEST)
