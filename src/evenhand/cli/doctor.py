"""`evenhand doctor` and `models calibrate`: what a model can do, found by small calls, and how it is best read."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import click

from evenhand.cli.groups import Command
from evenhand.cli.options import declared
from evenhand.cli.progress import shown_count
from evenhand.cli.request import check_file
from evenhand.core import aio
from evenhand.core.config import read_config
from evenhand.core.errors import BadResponseError, ModelError
from evenhand.core.options import Request, Several, argument, option
from evenhand.core.specs import key_values
from evenhand.core.types import Completion, Message, Params
from evenhand.models.base import Model, ModelOptions
from evenhand.models.load import load_model
from evenhand.runs.request import ModelsRequest

if TYPE_CHECKING:
    from evenhand.judging.card import Calibration
    from evenhand.runs.parts import Settings
    from evenhand.runs.plan import ModelPlan


_AT_CHANCE = 0.6


class CalibrateCommand(ModelsRequest):
    """What `evenhand models calibrate` is asked for."""

    fixed: ClassVar[Sequence[str]] = ("reasoning_effort", "workers", "replicas", "gpus_per_replica")

    spec: str = argument("The model.")
    passages: int = option(240, "How many questions to fit the weights on; times --calls is the number of calls.")
    calls: Literal["3", "6", "12"] = option("12", "Calls per question: fits weigh:calls=N for this N and below.")
    as_judge: bool = option(False, "Calibrate it as a judge instead, in about 450 calls.")
    seed: int = option(0, "Another one gives other passages.")
    out: Path | None = option(
        None, "Where to store the weights or the card, if not for the model itself.", short="-o", metavar="FILE"
    )


@click.command(cls=Command)
@declared(CalibrateCommand)
def calibrate(request: CalibrateCommand) -> int:
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
    settings = request.settings_for(read_config())
    [assignment] = request.models_named([request.spec])
    model = assignment["base"]
    request.check_prices([model])
    if request.as_judge:
        check_file(request.out, "the card of the judge")
        return aio.run(_calibrate_judge(model, settings, request.out))
    check_file(request.out, "the file of weights")
    return _weights(model, settings, request.passages, int(request.calls), request.seed, request.out)


def _weights(model: ModelPlan, settings: Settings, count: int, calls: int, seed: int, out: Path | None) -> int:
    from evenhand.methods.weigh.fit import fit_card
    from evenhand.methods.weigh.signals import WeightsCard, card_path, save_card
    from evenhand.models.budget import Budget
    from evenhand.runs.parts import opened_model
    from evenhand.training.questions.generate import contrast_passages

    chosen = contrast_passages(count, seed)

    async def fitted() -> WeightsCard:
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


async def _calibrate_judge(plan: ModelPlan, settings: Settings, out: Path | None) -> int:
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
    return ",".join(f"{name}={_option_text(value)}" for name, value in options.items())


def _option_text(value: float | bool | str) -> str:
    return str(value).lower() if isinstance(value, bool | str) else f"{value:g}"


_TOKENS = 512
"""Of the first reply: a model whose template hides the start of its thoughts shows them by their end."""
_SHOWN = 60
_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["A", "B"]}},
    "required": ["answer"],
    "additionalProperties": False,
}


class DoctorCommand(Request):
    """What `evenhand doctor` is asked for."""

    spec: str = argument("Spec.")
    base_url: str | None = option(None, "The endpoint of openai/ models (default OPENAI_BASE_URL, then OpenAI).")
    timeout: float | None = option(None, "Seconds to wait for an answer (default 120).")
    as_judge: bool = option(False, "Also rate contrasting texts, in about 450 calls: can it judge?")
    extra: Several = option(
        (), "An option of the model, e.g. slots=2 for local/.", flag="--model-option", metavar="KEY=VALUE"
    )


@click.command(cls=Command, renamed={"--judge": "--as-judge"})
@declared(DoctorCommand)
def doctor(request: DoctorCommand) -> int:
    """Check the model SPEC with one small call, and what it supports with two more.

    \b
    Examples:
      evenhand doctor openai/my-model --base-url http://localhost:8000/v1
      evenhand doctor 'openai/my-model?base_url=https://HOST/v1&key=MY_KEY'
      evenhand doctor local/builtin --as-judge

    With --as-judge it rates texts of which one is plainly better than the other. A judge that cannot tell them apart is
    at chance: it is unfit, and its ratings are worth nothing. How to read a fit judge is found by models calibrate.
    """
    settings = key_values(request.extra, "--model-option")
    options = ModelOptions(base_url=request.base_url, retries=1, extra=settings)
    return aio.run(
        _check(
            request.spec, replace(options, timeout=request.timeout) if request.timeout else options, request.as_judge
        )
    )


async def _check(spec: str, options: ModelOptions, judge: bool) -> int:
    started = time.perf_counter()
    async with load_model(spec, options) as model:
        click.echo(f"loaded    {model.spec} in {time.perf_counter() - started:.1f} s")
        for name, value in model.fingerprint().items():
            if name != "spec" and value != {}:
                click.echo(f"{name:<9} {value}")
        question = [Message("user", "Reply with the letter A.")]
        generation = await model.generate(question, Params(temperature=0, max_tokens=_TOKENS))
        used, [completion] = generation.usage, generation.completions
        tokens = f"{used.prompt_tokens} + {used.completion_tokens} tokens"
        if not completion.text.strip() and completion.refusal is None:
            raise BadResponseError(_empty(spec, completion, used.completion_tokens))
        click.echo(f"answers   {_start(completion.text)} ({tokens}, {generation.latency:.2f} s)")
        reasons = bool(completion.thought or used.thought_tokens)
        click.echo(f"reasoning {f'yes: {used.thought_tokens:,} tokens of thoughts' if reasons else 'no'}")
        await _features(model, question)
        if reasons:
            _tell_reasoning()
        if judge:
            await _judge(model)
    return 0


def _start(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r} …"


def _empty(spec: str, completion: Completion, tokens: int) -> str:
    """Why an empty reply means that the model cannot be used as it is, and what to change."""
    if completion.finish == "length":
        hint = "it may think longer; try --model-option thought_tokens=32768 or a lower --model-option reasoning_effort"
    elif completion.thought:
        hint = "it sent thoughts only; check the server's reasoning parser and chat template"
    else:
        hint = "check the model's name and the server's chat template"
    return f"{spec} answered with nothing ({tokens:,} tokens, finish: {completion.finish}); {hint}."


def _tell_reasoning() -> None:
    """The options of other commands that suit a model that thinks first."""
    click.echo("use       --model-option reasoning=true   (room for thoughts from the first call on)")
    click.echo("use       --reasoning-effort low          (fewer thoughts, where the endpoint takes it)")
    click.echo("use       --judge-samples 5               (as a judge: it has no logprobs, so ratings are means)")


async def _judge(model: Model) -> None:
    from evenhand.judging.card import rate_contrasts
    from evenhand.methods.base import judge_tests

    with shown_count() as count:
        rated = await rate_contrasts(model, judge_tests(), count)
    tell_ratings([each for _, found in rated.values() for each in found], thresholds=False)
    fit = [name for name, (_, found) in rated.items() if any(each.threshold is not None for each in found)]
    if fit:
        click.echo(f"fit       to judge for {', '.join(fit)}")
        click.echo(f"next      evenhand models calibrate {model.spec} --as-judge   (stores how to read it)")
    for name, (test, _) in rated.items():
        if name not in fit:
            click.echo(f"unfit     use another model to {test.task}")


async def _features(model: Model, question: list[Message]) -> None:
    """Ask for what is declared, since a server may ignore what it does not know."""
    try:
        scored = await model.generate(question, Params(temperature=0, max_tokens=1, logprobs=5))
        click.echo(f"logprobs  {'yes' if scored.completions[0].logprobs else 'no: answers are read from text'}")
        shaped = await model.generate(question, Params(temperature=0, max_tokens=40, schema=_SCHEMA))
        constrained = "schema" in model.features and shaped.text.lstrip().startswith("{")
        click.echo(f"schema    {'yes' if constrained else 'no: JSON is asked for in words'}")
    except ModelError as error:
        click.echo(f"features  could not be checked: {error}")
