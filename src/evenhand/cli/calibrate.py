"""`evenhand calibrate`: the weights with which the method `weigh` reads a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from evenhand import aio
from evenhand.cli.groups import Command
from evenhand.cli.options import call_options, check_file, check_prices, read_models, read_settings
from evenhand.cli.progress import shown_count

_AT_CHANCE = 0.6


@click.command(cls=Command)
@click.argument("spec")
@click.option("--passages", type=int, default=240, show_default=True, help="How many questions to fit the weights on.")
@click.option(
    "--calls",
    type=click.Choice(["3", "6", "12"]),
    default="12",
    show_default=True,
    help="Calls per question: fits weigh:calls=N for this N and below.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another one gives other passages.")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to store the weights, if not for the model itself.",
)
@click.option("--base-url", help="The endpoint of openai/ models (default OPENAI_BASE_URL, then OpenAI).")
@click.option("--timeout", type=float, help="Seconds to wait for an answer (default 120).")
@click.option("--retries", type=int, help="Retries of a call that failed (default 6).")
@click.option(
    "--model-option",
    "extra",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the model, e.g. slots=2 for local/.",
)
@call_options
def calibrate(spec: str, passages: int, calls: str, seed: int, out: Path | None, **given: Any) -> int:
    """Fit the weights of the method weigh to the model SPEC.

    The model is asked short questions about passages of our own, of which half answer the question and half do not. A
    logistic model learns how far each reply can be trusted. The weights are stored for the model; --method weigh then
    uses them, and the plan has their hash. Fit them again when the model changes.

    \b
    Examples:
      evenhand calibrate local/builtin
      evenhand calibrate openai/NAME --base-url http://localhost:8000/v1 --calls 6
      evenhand compare --model local/builtin --method default --method weigh --limit 220
    """
    from evenhand.methods.weigh.weights import card_path, save_card
    from evenhand.workflows.calibrate import calibrate_model
    from evenhand.workflows.calibrate import passages as contrast_passages

    check_file(out, "the file of weights")
    settings = read_settings(given)
    [assignment] = read_models({**given, "models": (spec,)})
    model = assignment["base"]
    check_prices(given, [model])
    chosen = contrast_passages(passages, seed)
    with shown_count(len(chosen)) as tell:
        card = aio.run(calibrate_model(model, settings, chosen, int(calls), tell))
    click.echo(f"{'calls':<6} {'AUC':>5}  {'told':>5} {'not told':>9}   (cross-validated on {card.passages} passages)")
    for level, found in card.fit.items():
        click.echo(f"{level:<6} {found['auc']:>5.2f}  {found['told']:>4.1f}% {found['not_told']:>8.1f}%")
    best = max(card.fit, key=lambda level: card.fit[level]["auc"])
    if card.fit[best]["auc"] < _AT_CHANCE:
        click.echo(f"unfit     {model.spec} cannot tell whether a passage answers a question; use another model.")
        return 0
    path = out or card_path(model.spec)
    save_card(card, path)
    click.echo(f"stored    {path}")
    named = f",weights={out}" if out else ""
    click.echo(f"use       --method weigh:calls={best}{named}")
    return 0
