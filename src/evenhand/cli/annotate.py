"""`evenhand annotate`: ratings by people, as blind sheets or on a web page, and numbers back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import orjson

from evenhand.annotate.ratings import HumanRatings, import_ratings
from evenhand.annotate.sheets import KEY, RATERS, export_sheets, rater_names
from evenhand.annotate.study import Cover
from evenhand.benchmarks.opinions import opinion_scales
from evenhand.cli.groups import Group
from evenhand.core.format import interval, limits, number, signed
from evenhand.show.tables import plain_table, safe_text
from evenhand.show.tables.fitting import print_table


@click.group(cls=Group)
def annotate() -> None:
    """Have people rate the answers of runs, blind, on the scales that the scorer `opinion` uses.

    \b
    Examples:
      evenhand annotate export runs/opinions --out ratings --raters ann,ben,cy --per-item 2
      evenhand annotate ui ratings
      evenhand annotate import ratings
    """


@annotate.command(renamed={"--samples": "--limit"})
@click.argument("runs", nargs=-1, required=True, metavar="RUN…", type=click.Path(path_type=Path))
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True, help="A new folder.")
@click.option("--raters", default="5", show_default=True, metavar="N|NAME,…", help="How many raters, or their names.")
@click.option("--per-item", type=int, metavar="N", help="Raters of each answer, by a balanced plan (default: all).")
@click.option("--limit", "-n", type=int, help="This many questions, drawn by the seed (default: all).")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of all draws.")
def export(runs: Sequence[Path], out: Path, raters: str, per_item: int | None, limit: int | None, seed: int) -> None:
    """Write a sheet per rater with the answers of all arms in RUN…, shuffled and without the arms' names.

    \b
    Examples:
      evenhand annotate export runs/opinions --out ratings --raters 5 --limit 40
      evenhand annotate export runs/opinions --out ratings --raters ann,ben,cy --per-item 2
    """
    names = rater_names(raters)
    key = export_sheets(runs, out, raters=names, per_item=per_item, samples=limit, seed=seed)
    count, sheets = len(key["items"]), f"{len(names)} sheet{'s' if len(names) > 1 else ''}"
    each = f", {per_item} ratings per answer" if "plan" in key else ""
    click.echo(f"{out}: {count:,} answers ({key['samples']:,} questions × {len(key['arms'])} arms), {sheets}{each}.")
    if key["left_out"]:
        click.echo(f"{key['left_out']:,} questions are left out, which not all arms have answered.")
    click.echo(f"Hand out {out / RATERS} and keep {out / KEY} to yourself.")
    click.echo(f"Next: evenhand annotate ui {out} (ratings on a web page), or evenhand annotate import {out}")


@annotate.command()
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER…", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 for other machines.")
@click.option("--port", type=click.IntRange(0, 65535), default=8792, show_default=True, help="0 takes a free one.")
@click.option("--url", metavar="URL", help="What the links begin with, e.g. https://ratings.example.org (a proxy's).")
@click.option(
    "--cover",
    type=click.Choice(["offensive", "all", "none"]),
    default="offensive",
    show_default=True,
    help="Which texts are shown only after a click; the scorer `builtin` looks for offensive ones.",
)
@click.option(
    "--break-after",
    type=click.IntRange(0),
    metavar="N",
    default=40,
    show_default=True,
    help="Suggest a break after N answers in a row; 0: never.",
)
@click.option("--new-links", is_flag=True, help="Make new links; the old ones stop working. No rating is lost.")
def ui(
    folders: Sequence[Path], host: str, port: int, url: str | None, cover: Cover, break_after: int, new_links: bool
) -> None:
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

    how = Served(host, port, url, cover, break_after, new_links)
    aio.run(serve_studies(folders, how, click.echo))


@annotate.command("import")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Also write the numbers to this JSON file."
)
def import_(folder: Path, out: Path | None) -> None:
    """Read the filled sheets of FOLDER: means per arm with intervals, and how far the raters agree.

    Ratings given on the page of `annotate ui` are written into the sheets first.

    \b
    Example:
      evenhand annotate import ratings --out ratings.json
    """
    found = import_ratings(folder)
    _show(found)
    if out is not None:
        out.write_bytes(orjson.dumps(found.note(), option=orjson.OPT_INDENT_2) + b"\n")
        click.echo(f"Written: {out}")


def _show(found: HumanRatings) -> None:
    from rich.console import Console

    table = plain_table(
        f"{found.raters} raters, {found.items:,} answers; 0 to 100 (which is better), 95 % intervals over questions"
    )
    for name in ("Scale", "Arm", "Mean", f"Against {found.baseline}", "Fleiss' kappa"):
        numeric = name not in ("Scale", "Arm")
        table.add_column(safe_text(name), justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    for scale in opinion_scales():
        for each in (each for each in found.ratings if each.scale == scale.short):
            mean, change = each.mean, each.difference
            table.add_row(
                f"{scale.short} ({scale.better})",
                safe_text(each.arm),
                interval(mean.estimate, mean.low, mean.high),
                "" if change is None else f"{signed(change.estimate)} {limits(change.low, change.high)}",
                number(each.kappa, 2),
            )
        table.add_row(scale.short, "all arms", "", "", number(found.kappa[scale.short], 2))
        table.add_section()
    print_table(Console(), table)
    if unsure := {scale: count for scale, count in found.cannot_tell.items() if count}:
        shown = ", ".join(f"{scale} {count:,}" for scale, count in unsure.items())
        click.echo(f"Raters could not tell: {shown} times. Means are of the others; kappa leaves these answers out.")
    click.echo("Kappa is of three bands, 0–33, 34–66 and 67–100; a dash: one rater, or all ratings in one band.")
