"""`evenhand judges`: whether judges can be trusted, against people and against themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import orjson

from evenhand import api
from evenhand.cli.groups import Group
from evenhand.cli.options import check_file
from evenhand.errors import UsageError
from evenhand.specs import key_values


@click.group(cls=Group)
def judges() -> None:
    """Check judges: against people's ratings, and for the order of answers and their own.

    \b
    Examples:
      evenhand judges people ratings runs/opinions
      evenhand judges swap runs/opinions --judge openai/NAME
    """


@judges.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("runs", nargs=-1, required=True, metavar="RUN…", type=click.Path(path_type=Path))
@click.option("--scorer", "-s", "scorers", multiple=True, metavar="SPEC", help="A stored judge (default: all).")
@click.option(
    "--scale", "scales", multiple=True, metavar="SCALE=ATTRIBUTE",
    help="Compare people's SCALE with this score of the judge, e.g. BS=toxicity (default: BS, CE and LS by their own).",
)  # fmt: skip
@click.option("--threshold", type=float, default=50, show_default=True, help="Ratings from here on count as yes.")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="The page (default judges.html in FOLDER).")
def people(
    folder: Path, runs: Sequence[Path], scorers: Sequence[str], scales: Sequence[str], threshold: float,
    out: Path | None,
) -> None:  # fmt: skip
    """Compare the judges of RUN… with people's ratings in FOLDER, and correct the run's numbers by these.

    FOLDER was written by `evenhand annotate export RUN… --limit N` and filled by raters. People rate N questions, the
    judge all; the corrected means, differences and shares are people's, for all questions. From 50 rated questions on,
    their intervals hold what they promise. No model is called.

    \b
    Examples:
      evenhand judges people ratings runs/opinions
      evenhand judges people ratings runs/opinions --threshold 30 --out judges.html
      evenhand judges people ratings runs/toxic --scorer builtin --scale BS=toxicity
    """
    from rich.console import Console

    from evenhand.annotate.judges_page import render, terminal_tables
    from evenhand.reports.html import write_page
    from evenhand.reports.tables.fitting import print_table

    target = html_file(out or folder / "judges.html")
    compared = {short: str(name) for short, name in key_values(scales, "--scale").items()}
    found = api.judges_against_people(folder, *runs, scorers=scorers, scales=compared or None, threshold=threshold)
    for shown in terminal_tables(found):
        print_table(Console(), shown)
    for sentence in found.sentences:
        click.echo(sentence)
    write_page(render(found), target)
    numbers = target.with_suffix(".json")
    numbers.write_bytes(orjson.dumps(found.note(), option=orjson.OPT_INDENT_2) + b"\n")
    click.echo(f"Page: {target}, numbers: {numbers}")


def html_file(path: Path) -> Path:
    """Return the path of a page, checked before anything is computed."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {path} should end in .html.")
    check_file(path, "the page")
    return path
