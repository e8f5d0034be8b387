"""`evenhand train pairs`: makes preference data for training from stored debates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from evenhand import api
from evenhand.cli.options import command
from evenhand.core.format import interval, number
from evenhand.core.options import argument, option
from evenhand.training.pairs import PairOptions
from evenhand.training.pairs.folder import DROPPED_PAIRS, DROPPED_STATEMENTS, reasons

_BARS = " ▁▂▃▄▅▆▇█"
_UNEQUAL = 0.6
"""Warn if one side is the shorter one in more than this share of the pairs."""


class PairsCommand(PairOptions):
    """Debates to make pairs of."""

    runs: tuple[Path, ...] = argument("Runs of debates.", metavar="RUN…")
    out: Path | None = option(None, "A new folder (default pairs in the first RUN).", short="-o", common=True)
    data: Path | None = option(None, "The folder of BBQ, for the leak check.", metavar="FOLDER")


@command(PairsCommand)
def pairs(request: PairsCommand) -> None:
    """Make preference pairs and low-bias answers from the debates in RUN…, split by topic.

    \b
    It writes JSON Lines in the conversational format that `datasets` and TRL read:
      pairs.train.jsonl, pairs.test.jsonl    prompt, chosen (low bias), rejected (high bias)
      sft.train.jsonl, sft.test.jsonl        messages: the question and a low-bias answer
      pairs.json, README.md                  counts, scores by round, leak check, provenance; a card to read

    \b
    Examples:
      evenhand train pairs runs/debate-age
      evenhand train pairs runs/debate-* --out pairs/all --per-topic 4
      evenhand train pairs runs/debate-age --threshold median --margin 0.5 --length-ratio 1.2
    """
    out = request.out or request.runs[0] / "pairs"
    about = api.pairs(*request.runs, out=out, data=request.data, **request.given(PairOptions))
    _print_rounds(about["rounds"], about["threshold"])
    _print_counts(about)
    if about["leaks"]["unchecked"]:
        click.echo(about["leaks"]["unchecked"])
    click.echo(f"Written: {out}. Next: evenhand train recipe {out} --model MODEL --out FOLDER")


def _print_rounds(rounds: Sequence[Mapping[str, Any]], threshold: float) -> None:
    click.echo(f"Bias scores by round (0–10, higher is worse; high is above {number(threshold)}):")
    click.echo(f"{'round':>5} {'n':>7}  {'mean [95 %]':<18} {'high':>6}  0         10")
    for row in rounds:
        mean = interval(row["mean"], row["low"], row["high"], 2)
        share = f"{number(100 * row['high_share'], 0)} %"
        click.echo(f"{row['round']:>5} {row['n']:>7,}  {mean:<18} {share:>6}  {bars(row['bins'])}")


def bars(bins: Sequence[int]) -> str:
    """Draw a histogram on one line; a bin that is not empty gets at least the smallest bar."""
    most = max(bins)
    return "".join(_BARS[0 if not each else max(1, round(each / most * (len(_BARS) - 1)))] for each in bins)


def _print_counts(about: Mapping[str, Any]) -> None:
    counts, sides = about["counts"], about["pairs"]
    click.echo(
        f"{counts['pairs_train']:,} pairs to train on and {counts['pairs_test']:,} to test, of "
        f"{counts['topics_with_pairs']:,} of {counts['topics']:,} topics; {counts['sft_train']:,} and "
        f"{counts['sft_test']:,} low-bias answers."
    )
    click.echo(
        f"Scores {number(sides['chosen_score'])} against {number(sides['rejected_score'])}, "
        f"words {number(sides['chosen_words'], 0)} against {number(sides['rejected_words'], 0)}."
    )
    click.echo(
        f"The chosen answer is the shorter one in {number(100 * sides['shorter_chosen'], 0)} % of the pairs; rounds "
        f"{number(sides['chosen_round'])} against {number(sides['rejected_round'])}."
    )
    if not 1 - _UNEQUAL <= sides["shorter_chosen"] <= _UNEQUAL:
        kind = "shorter" if sides["shorter_chosen"] > 0.5 else "longer"
        click.echo(f"! A reward model may only learn that better answers are {kind}; --length-ratio 1.5 prevents that.")
    without = [
        f"{counts[name]:,} {why}"
        for name, why in (
            ("topics_low_only", "had low bias only"),
            ("topics_high_only", "had high bias only"),
            ("topics_without_fitting", "had no pair that fits"),
        )
        if counts[name]
    ]
    if without:
        click.echo(f"Topics without pairs: {', '.join(without)}.")
    for what, why in (("Statements dropped", DROPPED_STATEMENTS), ("Possible pairs left out", DROPPED_PAIRS)):
        if found := reasons(counts, why):
            click.echo(f"{what}: {', '.join(found)}.")
    if counts["persona_texts"]:
        click.echo(f"Persona phrases were removed from {counts['persona_texts']:,} statements.")
