"""`evenhand judges`: whether judges can be trusted, against people and against themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import orjson

from evenhand import api
from evenhand.cli.ending import STOPPED
from evenhand.cli.given_options import call_options
from evenhand.cli.groups import Group
from evenhand.cli.progress import shown_count
from evenhand.cli.request import check_file, check_prices, read_models, read_settings
from evenhand.core import aio
from evenhand.core.errors import BudgetExhausted, UsageError
from evenhand.core.files import write_text
from evenhand.core.specs import key_values


@click.group(
    cls=Group,
    lazy={
        "malibu": ("evenhand.cli.malibu:malibu", "Audit judges and panels for bias by the author's identity."),
        "framing": ("evenhand.cli.framing:framing", "Measure how many biases a model admits in its own texts."),
        "attention": ("evenhand.cli.attention:attention", "Show where a model attends when told who wrote a text."),
    },
)
def judges() -> None:
    """Check judges: against people's ratings, and for biases of their own.

    \b
    Examples:
      evenhand judges people ratings runs/opinions
      evenhand judges swap runs/opinions --judge openai/NAME
      evenhand judges malibu --model openai/NAME --limit 20
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
    from evenhand.show.tables.fitting import print_table

    target = html_file(out or folder / "judges.html")
    compared = {short: str(name) for short, name in key_values(scales, "--scale").items()}
    found = api.judges_against_people(folder, *runs, scorers=scorers, scales=compared or None, threshold=threshold)
    for shown in terminal_tables(found):
        print_table(Console(), shown)
    for sentence in found.sentences:
        click.echo(sentence)
    write_text(target, render(found))
    _write_numbers(found.note(), target)


@judges.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN…", type=click.Path(path_type=Path))
@click.option("--judge", "models", multiple=True, required=True, metavar="SPEC", help="A judge; repeat for several.")
@click.option("--limit", "-n", type=int, help="This many questions, drawn by the seed (default: all).")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of the draw.")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="The page (default judges.html in the first RUN).")
@click.option("--base-url", help="The endpoint of openai/ models (default OPENAI_BASE_URL, then OpenAI).")
@click.option("--timeout", type=float, help="Seconds to wait for an answer (default 120).")
@click.option("--retries", type=int, help="Retries of a call that failed (default 6).")
@click.option("--model-option", "extra", multiple=True, metavar="KEY=VALUE", help="An option of the models.")
@click.option("--dry-run", is_flag=True, help="Print how many calls it takes, and make none.")
@call_options
def swap(runs: Sequence[Path], limit: int | None, seed: int, out: Path | None, dry_run: bool, **given: Any) -> int:
    """Have judges compare the answers of two arms or more in RUN…, each pair in both orders.

    What a judge says must not depend on the order. The page also says whether a judge prefers answers that it wrote
    itself: name it and other judges, who show how good these answers are. Calls are cached, so the same command goes
    on where it was stopped.

    \b
    Examples:
      evenhand judges swap runs/opinions --judge openai/NAME --limit 100 --dry-run
      evenhand judges swap runs/a runs/b --judge openai/a --judge openai/b --judge openai/c
    """
    from rich.console import Console

    from evenhand.judging.pairs import findings
    from evenhand.show.judge_pairs import render, terminal_table
    from evenhand.show.tables.fitting import print_table
    from evenhand.studies.judges import judged_pairs, read_pairs

    target = html_file(out or runs[0] / "judges.html")
    settings = read_settings(given)
    plans = [assignment["base"] for assignment in read_models(given)]
    check_prices(given, plans)
    material = read_pairs(runs, limit, seed)
    calls = 2 * len(material.pairs) * len(plans)
    words = sum(len(text) for pair in material.pairs for text in (pair.sample.prompt, *pair.texts))
    about = f"{len(material.pairs):,} pairs × 2 orders × {len(plans)} judges = {calls:,} calls"
    if dry_run:
        click.echo(f"{about}, about {calls * 220 + 2 * len(plans) * words // 4:,} tokens. Nothing was called.")
        return 0
    click.echo(f"{about}.", err=True)
    try:
        with shown_count() as count:
            verdicts = aio.run(judged_pairs(plans, material.pairs, settings, count))
    except BudgetExhausted as error:
        click.echo(f"Stopped: {error}. What was judged is cached; go on with the same command and a larger --budget.")
        return STOPPED
    found = findings(material, verdicts)
    print_table(Console(), terminal_table(found))
    for sentence in found.sentences:
        click.echo(sentence)
    write_text(target, render(found))
    _write_numbers(found.note(), target)
    return 0


def _write_numbers(note: Mapping[str, Any], page: Path) -> None:
    numbers = page.with_suffix(".json")
    numbers.write_bytes(orjson.dumps(note, option=orjson.OPT_INDENT_2) + b"\n")
    click.echo(f"Page: {page}, numbers: {numbers}")


def html_file(path: Path) -> Path:
    """Return the path of a page, checked before anything is computed."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {path} should end in .html.")
    check_file(path, "the page")
    return path
