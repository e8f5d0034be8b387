"""`evenhand annotate`: ratings by people, as blind sheets or on a web page, and numbers back."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from evenhand.annotate.ratings import HumanRatings, import_ratings, read_key
from evenhand.annotate.sheets import KEY, RATERS, export_sheets, planned, rater_names
from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.core.files import write_json
from evenhand.core.format import count, plural
from evenhand.core.options import Request, argument, option
from evenhand.show.table import Content, Table, columns, interval_cell
from evenhand.show.terminal import print_table


@click.group(cls=Group)
def annotate() -> None:
    """Have people rate the answers of runs blind, with the same rubric as a judge: the built-in one or your own.

    \b
    Examples:
      evenhand annotate export runs/opinions --out ratings --raters ann,ben,cy --per-item 2
      evenhand annotate ui ratings
      evenhand annotate import ratings
    """


class ExportCommand(Request):
    runs: tuple[Path, ...] = argument("The runs whose answers are rated.", metavar="RUN…")
    out: Path = option(..., "A new folder.", short="-o")
    raters: str = option("5", "How many raters, or their names.", metavar="N|NAME,…")
    per_item: int | None = option(None, "Raters of each answer, by a balanced plan (default: all).", metavar="N")
    limit: int | None = option(None, "This many questions, drawn by the seed (default: all).", short="-n")
    seed: int = option(0, "Random seed of all draws.")
    rubric: str = option(
        "opinion", "The scales: a built-in rubric, or a .yaml file, as for --scorer rubric:FILE.", metavar="NAME|FILE"
    )


@command(ExportCommand, annotate)
def export(request: ExportCommand) -> None:
    """Write a sheet per rater with the answers of all arms in RUN…, shuffled and without the arms' names.

    \b
    Examples:
      evenhand annotate export runs/opinions --out ratings --raters 5 --limit 40
      evenhand annotate export runs/opinions --out ratings --raters ann,ben,cy --per-item 2
      evenhand annotate export runs/mine --out ratings --rubric politeness.yaml
    """
    names, out = rater_names(request.raters), request.out
    key = export_sheets(
        request.runs,
        request.out,
        raters=names,
        per_item=request.per_item,
        samples=request.limit,
        seed=request.seed,
        rubric=request.rubric,
    )
    count, sheets = len(key["items"]), plural(len(names), "sheet")
    each = f", {request.per_item} ratings per answer" if "plan" in key else ""
    click.echo(
        f"{request.out}: {count:,} answers ({key['samples']:,} questions × {len(key['arms'])} arms), {sheets}{each}."
    )
    if key["left_out"]:
        click.echo(f"{key['left_out']:,} questions are left out, which not all arms have answered.")
    click.echo(f"Hand out {out / RATERS} and keep {out / KEY} to yourself.")
    click.echo(f"Next: evenhand annotate ui {out} (ratings on a web page), or evenhand annotate import {out}")


class UiCommand(Request):
    folders: tuple[Path, ...] = argument("Folders written by `annotate export`.", metavar="FOLDER…")
    host: str = option("127.0.0.1", "Where to listen; 0.0.0.0 for other machines.")
    port: int = option(8792, "0 picks a free port.", ge=0, le=65535)
    url: str | None = option(
        None, "What the links begin with, e.g. https://ratings.example.org (a proxy's).", metavar="URL"
    )
    cover: Literal["offensive", "all", "none"] = option(
        "offensive", "Which texts are shown only after a click; the scorer `builtin` looks for offensive ones."
    )
    break_after: int = option(40, "Suggest a break after N answers in a row; 0: never.", metavar="N", ge=0)
    new_links: bool = option(False, "Make new links; the old ones stop working. No rating is lost.")


@command(UiCommand, annotate)
def ui(request: UiCommand) -> None:
    """Serve the studies in FOLDER…, written by `annotate export`, as web pages: one for raters, one for you.

    Every rater has a link of their own and rates blind, by keyboard; every rating is saved at once, in FOLDER. Your
    own link shows progress, agreement, drift, and how many more ratings a wanted precision needs. Links stay the same
    when the server is started again. Ratings go into the sheets when it stops and with `annotate import`.

    \b
    Examples:
      evenhand annotate ui ratings
      evenhand annotate ui ratings --host 0.0.0.0 --url https://ratings.example.org
    """
    from evenhand.annotate.pages import Served, serve_studies
    from evenhand.core import aio

    how = Served(request.host, request.port, request.url, request.cover, request.break_after, request.new_links)
    aio.run(serve_studies(request.folders, how, click.echo))


class ImportCommand(Request):
    folder: Path = argument("A folder written by `annotate export`.")
    out: Path | None = option(None, "Also write the numbers to this JSON file.", short="-o")


@command(ImportCommand, annotate, "import")
def import_(request: ImportCommand) -> None:
    """Read the filled sheets of FOLDER: means per arm with intervals, and how far the raters agree.

    Ratings given on the page of `annotate ui` are written into the sheets first.

    \b
    Example:
      evenhand annotate import ratings --out ratings.json
    """
    found = import_ratings(request.folder)
    cells = {rater: len(found.better) * len(own) for rater, own in planned(read_key(request.folder)).items()}
    if missing := sum(found.missing.values()) + sum(cells[rater] for rater in found.absent):
        click.echo(f"{(total := sum(cells.values())) - missing:,} of {total:,} ratings done.")
    if found.absent:
        click.echo(f"Not one is from {', '.join(found.absent)}; everything below is of the other raters.")
    _show(found)
    if request.out is not None:
        write_json(request.out, found.note())
        click.echo(f"Written: {request.out}")


def _show(found: HumanRatings) -> None:
    rows, ends = list[list[Content]](), list[int]()
    for scale, better in found.better.items():
        for each in (each for each in found.ratings if each.scale == scale):
            change = "" if each.difference is None else interval_cell(each.difference, sign=True)
            name = f"{scale} ({better})"
            rows.append(
                [
                    name,
                    each.arm,
                    interval_cell(each.mean),
                    count(each.mean.n),
                    change,
                    interval_cell(each.agreement, digits=2),
                ]
            )
        rows.append([scale, "all arms", "", "", "", interval_cell(found.agreement[scale], digits=2)])
        ends.append(len(rows) - 1)
    title = f"{found.raters} raters, {found.items:,} answers; 0 to 100 (which is better), 95 % intervals over questions"
    heads = columns("Scale", "Arm", "Mean", "n", f"Against {found.baseline}", "Fleiss' kappa", words=2)
    print_table(Table(title, heads, rows, ends=ends))
    for what, counted in (("Raters could not tell", found.cannot_tell), ("Cells are empty", found.missing)):
        if shown := ", ".join(f"{scale} {times:,}" for scale, times in counted.items() if times):
            click.echo(f"{what}: {shown} times. Means are of the others; kappa leaves these answers out.")
    click.echo("Kappa is of three bands, 0–33, 34–66 and 67–100; a dash: one rater, or all ratings in one band.")
