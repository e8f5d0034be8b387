"""`evenhand models` and `evenhand doctor`: what can be used here, what a model can do, and how it is best read."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import click

from evenhand.cli.groups import Group
from evenhand.cli.options import command
from evenhand.cli.progress import shown_count
from evenhand.cli.request import check_file
from evenhand.core import aio
from evenhand.core.config import PROJECT_FILE, project_file, read_config, user_file
from evenhand.core.errors import BadResponseError, EvenhandError, ModelError
from evenhand.core.files import cache_folder, scratch
from evenhand.core.format import doc_line
from evenhand.core.options import Request, Several, argument, option
from evenhand.core.specs import key_values
from evenhand.core.types import Completion, Message, Params, Unscored
from evenhand.core.version import versions
from evenhand.models import weights
from evenhand.models.base import PROVIDERS, Model, ModelOptions
from evenhand.models.cache import ResponseCache
from evenhand.models.endpoints import provider_options
from evenhand.models.load import load_model
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings
from evenhand.runs.plan import ModelPlan, make_plan
from evenhand.runs.request import ModelsRequest
from evenhand.scorers.base import load_scorer
from evenhand.scorers.neural import weights as neural

_AT_CHANCE = 0.6


class CalibrateCommand(ModelsRequest):
    fixed: ClassVar[Sequence[str]] = ("reasoning_effort", "workers", "replicas", "gpus_per_replica")

    spec: str = argument("The model.")
    passages: int = option(240, "How many questions to fit the weights on; times --calls is the number of calls.")
    calls: Literal["3", "6", "12"] = option("12", "Calls per question: fits weigh:calls=N for this N and below.")
    seed: int = option(0, "Another one gives other passages.")
    out: Path | None = option(
        None, "Where to store the weights, if not for the model itself.", short="-o", metavar="FILE"
    )


@command(CalibrateCommand)
def calibrate(request: CalibrateCommand) -> int:
    """Fit the weights of the method weigh to the model SPEC. For judges see `evenhand judges check`.

    The model is asked short questions about passages of our own, of which half answer the question and half do not. A
    logistic model learns how much weight each reply deserves. The weights are stored for the model; --method weigh then
    uses them, and the plan has their hash. Fit them again when the model changes.

    \b
    Examples:
      evenhand models calibrate local/builtin
      evenhand models calibrate openai/NAME --base-url http://localhost:8000/v1 --calls 6
      evenhand compare --model local/builtin --method default --method weigh --limit 220
    """
    settings = request.settings_for(read_config())
    model = request.one_model(request.spec)
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
    spec: str | None = argument("The model; without one, the installation is checked.", default=None)
    base_url: str | None = option(None, "The endpoint of openai/ models (default OPENAI_BASE_URL, then OpenAI).")
    timeout: float | None = option(None, "Seconds to wait for an answer (default 120).")
    extra: Several = option(
        (), "An option of the model, e.g. slots=2 for local/.", flag="--model-option", metavar="KEY=VALUE"
    )


@command(DoctorCommand)
def doctor(request: DoctorCommand) -> int:
    """Check with three small calls that the model SPEC answers and what it supports; without SPEC, the installation.

    \b
    Examples:
      evenhand doctor
      evenhand doctor openai/my-model --base-url http://localhost:8000/v1
      evenhand doctor 'openai/my-model?base_url=https://HOST/v1&key=MY_KEY'
      evenhand doctor local/builtin

    `evenhand judges check` tests whether it can judge.
    """
    if request.spec is None:
        return _check_installation()
    settings = key_values(request.extra, "--model-option")
    options = ModelOptions(base_url=request.base_url, retries=1, extra=settings)
    return aio.run(_check(request.spec, replace(options, timeout=request.timeout) if request.timeout else options))


def _check_installation() -> int:
    """Say what works here without calling any model; the exit code is 1 if something does not."""
    checks = {"config": _config, "cache": _cache, "run": _small_run, "scorer": _scored, "models": _models}
    click.echo("versions  " + ", ".join(f"{name} {version}" for name, version in versions().items()))
    faults = 0
    for name, check in checks.items():
        try:
            lines = check()
        except (EvenhandError, OSError, sqlite3.Error, ImportError) as error:
            faults += 1
            lines = [f"does not work: {error}"]
        for line in lines:
            click.echo(f"{name:<9} {line}")
    if not faults:
        click.echo("next      evenhand audit local/builtin --limit 220, or evenhand doctor SPEC for another model")
    return 1 if faults else 0


def _config() -> list[str]:
    config = read_config()
    files = [str(each) for each in (user_file(), project_file()) if each is not None and each.is_file()]
    for provider in config.providers.values():
        provider_options(provider)
    return [", ".join(files) or "no file"]


def _cache() -> list[str]:
    path = cache_folder() / "responses.sqlite"
    ResponseCache(path).close()
    return [f"{path} can be read and written"]


def _small_run() -> list[str]:
    """A run of a model that always answers A goes the way of any run: samples, calls, grades, store."""
    plan = make_plan({"models": ["fake/A"], "limit": 22})
    with scratch() as folder:
        done = aio.run(run_plan(plan, folder / "run", Settings())).statuses["graded"]
    if done != 22:
        raise BadResponseError(f"only {done} of 22 built-in questions were graded")
    return ["22 built-in questions were asked of a stand-in, graded and stored"]


def _scored() -> list[str]:
    [found] = aio.run(load_scorer("builtin").score(["Have a nice day."]))
    if isinstance(found, Unscored):
        raise BadResponseError(f"builtin has no score: {found.reason}")
    return [f"builtin: toxicity of a kind sentence {found['toxicity']:.2f}"]


def _models() -> list[str]:
    """The providers that can be used, and why others cannot."""
    found = {name: PROVIDERS.get(name).unavailable() for name in PROVIDERS.names()}
    place = weights.installed("builtin")
    return [
        f"ready: {', '.join(name for name, fault in found.items() if fault is None)}",
        *(f"{name}: {fault}" for name, fault in found.items() if fault is not None),
        f"local/builtin: {place or 'not here: evenhand models pull builtin'}",
        f"openai/: OPENAI_API_KEY is {'set' if os.environ.get('OPENAI_API_KEY') else 'not set'}",
    ]


async def _check(spec: str, options: ModelOptions) -> int:
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


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    """List the model providers, built in or from config files, whether they can be used here, and the local weights.

    \b
    Examples:
      evenhand models
      evenhand models pull builtin
    """
    if context.invoked_subcommand is not None:
        return
    for name in PROVIDERS.names():
        provider = PROVIDERS.get(name)
        click.echo(f"{name:<10} {provider.unavailable() or 'ready'}")
        click.echo(f"{'':<10} {doc_line(provider)}")
    _list_named()
    key = "set" if os.environ.get("OPENAI_API_KEY") else "not set"
    click.echo(f"\nOPENAI_API_KEY is {key}; OPENAI_BASE_URL is {os.environ.get('OPENAI_BASE_URL') or 'not set'}.")
    click.echo("\nWeights for local/NAME:")
    for name, each in weights.RECOMMENDED.items():
        place = weights.installed(name)
        state = str(place) if place else f"not here: evenhand models pull {name}"
        state += f", with the adapter {each.lora.name}" if each.lora else ""
        click.echo(f"  {name:<14} {each.licence:<12} {state}")
    click.echo("\nWeights for --scorer NAME:")
    click.echo(f"  {'neural':<14} {neural.LICENCE:<12} {neural.installed() or 'not here: evenhand models pull neural'}")


def _list_named() -> None:
    """The providers of the config files, and where they come from."""
    named = read_config().providers
    click.echo("\nNamed providers:" if named else f"\nNo named providers in {user_file()} or {PROJECT_FILE}.")
    for name, provider in sorted(named.items()):
        found = provider_options(provider)
        key = found.get("key")
        parts = [provider.kind, *(found.get("base_url") or "").split(",")]
        parts += [f"key {key} ({'set' if os.environ.get(key) else 'not set'})"] if key else []
        parts += [f"price {found['price'].input:g}/{found['price'].output:g}"] if "price" in found else []
        click.echo(f"  {name:<14} {', '.join(filter(None, parts))}")
        click.echo(f"  {'':<14} from {provider.source.path}")


class PullCommand(Request):
    name: str = argument("The weights.")


@command(PullCommand, models)
def pull(request: PullCommand) -> None:
    """Download the weights NAME, of a local model or of the scorer neural, checked against their sum.

    \b
    Examples:
      evenhand models pull builtin
      evenhand models pull neural
    """
    if request.name == "neural":
        with shown_count(unit="bytes") as count:
            folder = aio.run(neural.pull(count))
        click.echo(f"{folder} (licence {neural.LICENCE}); use it as --scorer neural")
        return
    with shown_count(unit="bytes") as count:
        path = aio.run(weights.pull(request.name, count))
    licence = weights.RECOMMENDED[request.name].licence
    click.echo(f"{path} (licence {licence}); use it as local/{request.name}")


models.add_command(calibrate)
