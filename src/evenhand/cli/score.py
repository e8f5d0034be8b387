"""`evenhand score`: the texts of a file through one scorer or several."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal

import click
from rich.console import Console

from evenhand.cli.options import command
from evenhand.cli.progress import FAILED, shown_count
from evenhand.core import aio
from evenhand.core.errors import EvenhandError, UsageError
from evenhand.core.fields import CONTROLS, CacheFields
from evenhand.core.format import interval, number, percent, plural
from evenhand.core.options import Several, argument, option
from evenhand.core.progress import Count
from evenhand.core.types import Unscored
from evenhand.core.untrusted import one_line
from evenhand.data.texts import TextFile, TextRow
from evenhand.judging.certificate import untold
from evenhand.models.cache import ResponseCache
from evenhand.runs.controls import OFF_CAVEAT, certify, judge_checks
from evenhand.runs.request import cache_use
from evenhand.scorers.base import SCORERS, Scorer, model_of
from evenhand.scorers.files import Result, ScoreTally, Write, csv_writer, load_scorers, part_of, score_texts, written_to
from evenhand.scorers.neural import weights as neural_weights
from evenhand.show.sections.answers import agreement_table
from evenhand.show.table import Table, columns
from evenhand.show.terminal import print_table, safe_text
from evenhand.studies.results import FEW

_PREVIEW = 10
_SHOWN_ATTRIBUTES = 8
_SHOWN_REASONS = 3
_SHOWN_CHARACTERS = 40


class ScoreCommand(CacheFields):
    file: Path = argument("The texts.")
    specs: Several = option(
        (),
        "NAME or NAME:ARGUMENT, see evenhand list scorers; repeat to compare (default neural, else builtin).",
        flag="--scorer",
        short="-s",
        metavar="SPEC",
    )
    field: str | None = option(None, "The field or column that holds the text (default text).", metavar="NAME")
    context: str | None = option(
        None, "The field with the prompt that the text answers, for neural, quality and judges.", metavar="NAME"
    )
    controls: Literal["on", "off"] = CONTROLS
    out: Path | None = option(None, "A .csv or .jsonl file for all rows.", short="-o")


@command(ScoreCommand)
def score(request: ScoreCommand) -> int:
    """Score the texts in FILE: .txt (a text per line), .jsonl or .csv.

    \b
    Examples:
      evenhand score comments.txt                            look at the first rows and the means
      evenhand score replies.jsonl --field reply -o scored.csv
      evenhand score replies.jsonl -s builtin -s builtin_b   how far do two scorers agree?
      evenhand score replies.csv -s judge:openai/gpt-4o-mini -o scored.jsonl
      evenhand score comments.txt > scored.csv               CSV wherever there is no terminal

    Every row keeps its own fields and gets SPEC.attribute for each score. A text that cannot be scored has empty
    cells and the reason in SPEC.unscored; it is never a zero. Equal texts are scored once; if the command is repeated
    with --reuse-answers, what an endpoint has rated is not paid for again. Different scorers measure different
    things: look at how far they agree, never mix them. A judge first rates texts of known value, and what it does not
    see is said; --controls off leaves this out. The exit code is 4 if a scorer scored no text at all.
    """
    out = request.out
    source = TextFile(request.file, request.field, request.context)
    total, fields = source.survey()
    flat = [name for name, fits in fields.items() if fits]
    _check_out(out, request.file)
    specs = request.specs or (best_scorer(),)
    on_terminal = out is None and stdout_is_terminal()
    with _cache(specs, *cache_use(request)) as cache:
        scorers = load_scorers(specs, cache, () if on_terminal else fields)
        tally = ScoreTally(scorers, preview=_PREVIEW if on_terminal else 0)
        with _opened(out, on_terminal, flat, scorers, tally) as write, shown_count() as count:
            caveats = aio.run(_scored(request, source, scorers, write, lambda done, _: count(done, total)))
    if out is not None:
        click.echo(f"{out}: {plural(tally.rows, 'row')}")
    # Where the rows go to standard output, what is said about them must not.
    shown = sys.stdout if out is not None or on_terminal else sys.stderr
    _show(tally, caveats, Console(file=shown, width=None if shown.isatty() else 120))
    silent = [each.spec for place, each in enumerate(scorers) if tally.rows and not tally.means(place)]
    if silent:
        click.echo(f"evenhand: No text has a score by {' or '.join(silent)}; the reasons are above.", err=True)
    return FAILED if silent else 0


async def _scored(
    request: ScoreCommand, source: TextFile, scorers: Sequence[Scorer], write: Write, count: Count
) -> list[list[str]]:
    """Check the judges among the scorers, score all texts, and return what readers must know of each scorer."""
    async with contextlib.AsyncExitStack() as stack:
        for scorer in scorers:
            await stack.enter_async_context(scorer)
        due = judge_checks(scorers, request.controls)
        for each in due:
            texts = plural(len(each.test.contrasts()), "text")
            click.echo(
                f"evenhand: {each.judge} first rates {texts} of known value (not with --controls off).", err=True
            )
        certificates = await certify(due)
        await score_texts(source, scorers, write, count)
    off = OFF_CAVEAT if request.controls == "off" else ""
    return [
        [off.format(metrics=each.spec)]
        if off and each.asks_model
        else [f"{name} cannot be determined: {why}" for name, why in untold(certificates, {each.id}).items()]
        for each in scorers
    ]


def best_scorer() -> str:
    """Return the best scorer that works here without a key: `neural`, downloaded on first use, or else `builtin`."""
    neural = SCORERS.get("neural")
    try:
        if neural.unavailable() and neural_weights.can_run():
            click.echo("evenhand: The scorer neural is downloaded once.", err=True)
            with shown_count("bytes") as count:
                aio.run(neural_weights.pull(count))
        reason = neural.unavailable()
    except EvenhandError as error:
        reason = str(error)
    if reason:
        click.echo(f"evenhand: builtin scores, which is less exact than neural. {reason}", err=True)
    return "builtin" if reason else "neural"


@contextlib.contextmanager
def _cache(specs: Sequence[str], path: Path | None, reuse: bool) -> Generator[ResponseCache | None]:
    """The response cache, if a scorer asks a model."""
    if path is None or not any(map(model_of, specs)):
        yield None
        return
    with contextlib.closing(ResponseCache(path, reuse=reuse)) as cache:
        yield cache


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()


def _check_out(out: Path | None, file: Path) -> None:
    if out is None:
        return
    if out.suffix.lower() not in (".csv", ".jsonl"):
        raise UsageError(f"--out {out} should end in .csv or .jsonl.")
    if out.exists() and out.samefile(file):
        raise UsageError("--out is the file that is read; give it another name.")


@contextlib.contextmanager
def _opened(
    out: Path | None, on_terminal: bool, fields: Sequence[str], scorers: Sequence[Scorer], tally: ScoreTally
) -> Generator[Write]:
    """Where rows go."""
    if on_terminal:
        yield tally.add
        return
    if out is None:
        yield _both(csv_writer(sys.stdout, fields, scorers), tally.add)
        return
    try:
        with written_to(out, fields, scorers) as write:
            yield _both(write, tally.add)
    except BaseException:
        if tally.rows:
            click.echo(f"evenhand: {tally.rows:,} rows were finished and are in {part_of(out)}.", err=True)
        else:
            part_of(out).unlink(missing_ok=True)
        raise


def _both(first: Write, second: Write) -> Write:
    def write(row: TextRow, results: Sequence[Result]) -> None:
        first(row, results)
        second(row, results)

    return write


def _show(tally: ScoreTally, caveats: Sequence[Sequence[str]], console: Console) -> None:
    """The first rows, the means by each scorer, and how far each two agree."""
    if tally.first:
        print_table(_first_rows(tally), console)
    for place in range(len(tally.scorers)):
        _show_means(tally, console, place)
        for caveat in caveats[place]:
            console.print(f"! {caveat}.", markup=False, highlight=False)
    for first, second in combinations(range(len(tally.scorers)), 2):
        _show_agreement(tally, console, first, second)


def _first_rows(tally: ScoreTally) -> Table:
    most = _SHOWN_ATTRIBUTES if len(tally.scorers) == 1 else 1
    names = [
        name if most > 1 else f"{scorer.spec} {name}" for scorer in tally.scorers for name in scorer.attributes[:most]
    ]
    rows: list[list[str]] = []
    for text, results in tally.first:
        cells = [
            number(None if isinstance(result, Unscored) else result.get(name), 3)
            for scorer, result in zip(tally.scorers, results, strict=True)
            for name in scorer.attributes[:most]
        ]
        rows.append([one_line(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"), *cells])
    return Table(f"The first {len(tally.first)} of {tally.rows:,} texts", columns("text", *names), rows)


def _show_means(tally: ScoreTally, console: Console, place: int) -> None:
    scorer, reasons = tally.scorers[place], tally.reasons[place]
    console.print(
        f"\n{scorer.id}: {plural(tally.rows, 'text')}, {reasons.total():,} unscored", markup=False, highlight=False
    )
    for reason, count in reasons.most_common(_SHOWN_REASONS):
        console.print(safe_text(one_line(f"  {count:,} × {reason}")))
    rows = [
        [row.attribute, f"{row.n:,}", interval(mean.estimate, mean.low, mean.high, 3), _share(row.high, row.n)]
        for row in tally.means(place)
        for mean in [row.mean]
    ]
    if rows:
        print_table(Table("", columns("attribute", "n", "mean [95 %]", "at 0.5 or more"), rows), console)


def _show_agreement(tally: ScoreTally, console: Console, first: int, second: int) -> None:
    one, other = tally.scorers[first].spec, tally.scorers[second].spec
    shared = tally.agreements(first, second)
    if not shared:
        console.print(f"\n{one} and {other} have no attribute in common.", markup=False, highlight=False)
        return
    print_table(agreement_table(one, other, shared), console)


def _share(share: float, n: int) -> str:
    """A percentage, or a count of few texts."""
    return f"{round(share * n)} of {n}" if n < FEW else percent(share)
