"""`evenhand train pairs`: makes preference data for training from stored debates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from evenhand import api
from evenhand.cli.groups import Command
from evenhand.core.format import interval, number
from evenhand.training.pairs import POLICIES, PairOptions
from evenhand.training.pairs.folder import DROPPED_PAIRS, DROPPED_STATEMENTS, reasons

_BARS = " ▁▂▃▄▅▆▇█"
_DEFAULTS = PairOptions()
_UNEQUAL = 0.6
"""Warn if one side is the shorter one in more than this share of the pairs."""


@click.command(cls=Command)
@click.argument("runs", nargs=-1, required=True, metavar="RUN…", type=click.Path(path_type=Path))
@click.option("--out", "-o", type=click.Path(path_type=Path), help="A new folder (default pairs in the first RUN).")
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    default=_DEFAULTS.policy,
    show_default=True,
    help="Pair all low with all high statements of a topic, the two extremes, or each role's last with its first.",
)
@click.option(
    "--threshold",
    default=str(_DEFAULTS.threshold),
    show_default=True,
    help="Scores above it are high bias: a number, median (of all), or topic (each topic's own median).",
)
@click.option(
    "--margin", type=float, default=_DEFAULTS.margin, show_default=True, help="Minimum score difference of a pair."
)
@click.option(
    "--length-ratio",
    type=float,
    default=_DEFAULTS.length_ratio,
    show_default=True,
    help="Maximum ratio of the answers' lengths in words, with as many longer as shorter ones; 0 turns this off.",
)
@click.option(
    "--per-topic", type=int, default=_DEFAULTS.per_topic, show_default=True, help="Maximum number of pairs per topic."
)
@click.option(
    "--test-share", type=float, default=_DEFAULTS.test_share, show_default=True, help="Share of topics held out."
)
@click.option(
    "--seed", type=int, default=_DEFAULTS.seed, show_default=True, help="Seed of the choice of held-out topics."
)
@click.option("--data", type=click.Path(path_type=Path), help="The folder of BBQ, for the leak check.")
def pairs(runs: Sequence[Path], out: Path | None, data: Path | None, **given: Any) -> None:
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
    given["threshold"] = _number_or_text(given["threshold"])
    out = out or runs[0] / "pairs"
    about = api.pairs(*runs, out=out, data=data, **given)
    _print_rounds(about["rounds"], about["threshold"])
    _print_counts(about)
    if about["leaks"]["unchecked"]:
        click.echo(about["leaks"]["unchecked"])
    click.echo(f"Written: {out}. Next: evenhand train recipe {out} --model MODEL --out FOLDER")


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


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
