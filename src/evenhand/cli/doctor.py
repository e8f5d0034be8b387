"""`evenhand doctor`: a few small calls that show whether a model can be used, and for what."""

from __future__ import annotations

import time
from dataclasses import replace

import click

from evenhand.cli.calibrate import tell_ratings
from evenhand.cli.groups import Command
from evenhand.cli.progress import shown_count
from evenhand.core import aio
from evenhand.core.errors import BadResponseError, ModelError
from evenhand.core.specs import key_values
from evenhand.core.types import Completion, Message, Params
from evenhand.models.base import Model, ModelOptions, load_model

_TOKENS = 512
"""Of the first reply: a model whose template hides the start of its thoughts shows them by their end."""
_SHOWN = 60
_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["A", "B"]}},
    "required": ["answer"],
    "additionalProperties": False,
}


@click.command(cls=Command, renamed={"--judge": "--as-judge"})
@click.argument("spec")
@click.option("--base-url", help="The endpoint of openai/ models (default OPENAI_BASE_URL, then OpenAI).")
@click.option("--timeout", type=float, help="Seconds to wait for an answer (default 120).")
@click.option(
    "--as-judge",
    is_flag=True,
    help="Also rate contrasting texts, in about 450 calls: can it judge?",
)
@click.option(
    "--model-option",
    "extra",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the model, e.g. slots=2 for local/.",
)
def doctor(spec: str, base_url: str | None, timeout: float | None, as_judge: bool, extra: tuple[str, ...]) -> int:
    """Check the model SPEC with one small call, and what it supports with two more.

    \b
    Examples:
      evenhand doctor openai/my-model --base-url http://localhost:8000/v1
      evenhand doctor 'openai/my-model?base_url=https://HOST/v1&key=MY_KEY'
      evenhand doctor local/builtin --as-judge

    With --as-judge it rates texts of which one is plainly better than the other. A judge that cannot tell them apart is
    at chance: it is unfit, and its ratings are worth nothing. How to read a fit judge is found by evenhand calibrate.
    """
    settings = key_values(extra, "--model-option")
    options = ModelOptions(base_url=base_url, retries=1, extra=settings)
    return aio.run(_check(spec, replace(options, timeout=timeout) if timeout else options, as_judge))


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
