"""`evenhand models calibrate`: the weights by which the method `weigh` reads a model, and a judge's thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evenhand.cli.given_options import call_options
from evenhand.cli.groups import Command
from evenhand.cli.progress import shown_count
from evenhand.cli.request import check_file, check_prices, read_models, read_settings
from evenhand.core import aio

if TYPE_CHECKING:
    from evenhand.judging.card import Calibration
    from evenhand.runs.parts import Settings
    from evenhand.runs.plan import ModelPlan

_AT_CHANCE = 0.6


@click.command(cls=Command)
@click.argument("spec")
@click.option(
    "--passages",
    type=int,
    default=240,
    show_default=True,
    help="How many questions to fit the weights on; times --calls is the number of calls.",
)
@click.option(
    "--calls",
    type=click.Choice(["3", "6", "12"]),
    default="12",
    show_default=True,
    help="Calls per question: fits weigh:calls=N for this N and below.",
)
@click.option("--as-judge", is_flag=True, help="Calibrate it as a judge instead, in about 450 calls.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another one gives other passages.")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to store the weights or the card, if not for the model itself.",
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
def calibrate(spec: str, passages: int, calls: str, as_judge: bool, seed: int, out: Path | None, **given: Any) -> int:
    """Fit the weights of the method weigh to the model SPEC, or calibrate it as a judge.

    The model is asked short questions about passages of our own, of which half answer the question and half do not. A
    logistic model learns how far each reply can be trusted. The weights are stored for the model; --method weigh then
    uses them, and the plan has their hash. Fit them again when the model changes.

    With --as-judge the model rates texts of which one is plainly better than the other. The curves that turn its
    ratings into probabilities are stored for the model, with the options that suit it; methods with this judge then use
    them, and the plan has their hash. Options of other commands that use its ratings are printed.

    \b
    Examples:
      evenhand models calibrate local/builtin
      evenhand models calibrate openai/NAME --base-url http://localhost:8000/v1 --calls 6
      evenhand compare --model local/builtin --method default --method weigh --limit 220
      evenhand models calibrate openai/my-judge --as-judge
    """
    settings = read_settings(given)
    [assignment] = read_models({**given, "models": (spec,)})
    model = assignment["base"]
    check_prices(given, [model])
    if as_judge:
        check_file(out, "the card of the judge")
        return aio.run(_judge(model, settings, out))
    check_file(out, "the file of weights")
    return _weights(model, settings, passages, int(calls), seed, out)


def _weights(model: ModelPlan, settings: Settings, count: int, calls: int, seed: int, out: Path | None) -> int:
    from evenhand.methods.weigh.fit import fit_card
    from evenhand.methods.weigh.signals import Card, card_path, save_card
    from evenhand.models.budget import Budget
    from evenhand.runs.parts import opened_model
    from evenhand.training.questions.generate import contrast_passages

    chosen = contrast_passages(count, seed)

    async def fitted() -> Card:
        async with opened_model(model, settings, Budget(settings.budget)) as opened:
            return await fit_card(opened, chosen, calls, settings.concurrency, shown)

    with shown_count() as shown:
        card = aio.run(fitted())
    click.echo(f"{'calls':<6} {'AUC':>5}  {'told':>5} {'not told':>9}   (cross-validated on {card.passages} passages)")
    for level, found in card.fit.items():
        click.echo(f"{level:<6} {found['auc']:>5.2f}  {found['told']:>4.1f}% {found['not_told']:>8.1f}%")
    best = max(card.fit, key=lambda level: card.fit[level]["auc"])
    if card.fit[best]["auc"] < _AT_CHANCE:
        click.echo(f"unfit     {model.spec} cannot tell whether a passage answers a question; use another model.")
        return 1
    path = out or card_path(model.spec)
    save_card(card, path)
    click.echo(f"stored    {path}")
    named = f",weights={out}" if out else ""
    click.echo(f"use       --method weigh:calls={best}{named}")
    return 0


async def _judge(plan: ModelPlan, settings: Settings, out: Path | None) -> int:
    from evenhand.judging.card import Calibrated, card_of, card_path, rate_contrasts, save_card
    from evenhand.methods.base import METHODS, judge_tests
    from evenhand.models.budget import Budget
    from evenhand.runs.parts import opened_model

    async with opened_model(plan, settings, Budget(settings.budget)) as model:
        with shown_count() as count:
            rated = await rate_contrasts(model, judge_tests(), count)
    tell_ratings([each for _, found in rated.values() for each in found], thresholds=True)
    card = card_of(plan.spec, rated)
    path = out or card_path(plan.spec)
    if card.curves:
        save_card(card, path)
        click.echo(f"stored    {path}")
    for name, (test, found) in rated.items():
        options = dict(test.options(found))
        if not any(each.threshold is not None for each in found):
            click.echo(f"use       another model to {test.task}")
        elif issubclass(METHODS.get(name).options, Calibrated):
            named = f":calibration={out}" if out else ""
            knows = f"; it sets {_told(options)}" if options else ""
            click.echo(f"use       --method {name}{named} --judge {plan.spec}   (reads this card{knows})")
        else:
            click.echo(f"use       --method {name}:{_told(options)}")
        for command in test.commands(found):
            click.echo(f"use       {command}")
    return 0 if card.curves else 1


def tell_ratings(found: Sequence[Calibration], *, thresholds: bool) -> None:
    """Print how well each rating parts the texts, and whether it is fit or its threshold."""
    click.echo(
        f"{'rating':<10} {'pairs':>7} {'AUC':>5}  {'high':>5} {'low':>5}  {'threshold' if thresholds else ''}".rstrip()
    )
    for each in found:
        pairs = f"{len(each.high)}/{len(each.low)}"
        if each.auc is None:
            click.echo(f"{each.rating:<10} {pairs:>7}     –  no ratings could be read ({each.unscored} replies)")
            continue
        high, low = (100 * sum(values) / len(values) for values in (each.high, each.low))
        if each.threshold is None:
            reading = "at chance: do not use it"
        else:
            reading = f"{100 * each.threshold:.1f}" if thresholds else "fit"
        unread = f"  ({each.unscored} unread)" if each.unscored else ""
        click.echo(f"{each.rating:<10} {pairs:>7} {each.auc:>5.2f}  {high:>5.1f} {low:>5.1f}  {reading}{unread}")


def _told(options: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={_shown(value)}" for name, value in options.items())


def _shown(value: float | bool | str) -> str:
    return str(value).lower() if isinstance(value, bool | str) else f"{value:g}"
